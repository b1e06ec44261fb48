"""Walking and removing trees that somebody else writes: depth, width, names, races, what is never touched."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib import file_trees
from nodelib.file_trees import Kind, Walk
from tests.hostile_trees import deep

DEPTH = 3000


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    """Removed by the code under test at the end: pytest's own clearing up recurses."""
    path = tmp_path / "top"
    path.mkdir()
    yield path
    file_trees.remove(str(path))
    assert not os.path.lexists(path)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["d", "d" * 200], ids=["short names", "a path of 600 KB"])
def test_a_deep_tree_is_walked_and_removed(top: Path, name: str) -> None:
    deep(top, DEPTH, name)
    before, most, kinds = open_files(), 0, []
    for number, step in enumerate(Walk(str(top))):
        kinds.append(step.kind)
        if number % 500 == 0:
            most = max(most, open_files())
    assert [kinds.count(kind) for kind in (Kind.ENTER, Kind.FILE, Kind.LEAVE)] == [DEPTH + 1, 1, DEPTH + 1]
    assert most - before < 100
    file_trees.remove(str(top))
    assert not top.exists() and open_files() == before


def test_every_level_of_a_deep_tree_keeps_its_other_names(top: Path) -> None:
    """Levels that are closed on the way down are read on where they were left."""
    at = top
    for number in range(120):
        for side in ("a", "z"):
            (at / f"{side}-{number}").mkdir()
            (at / f"{side}-{number}" / "file").touch()
            (at / f"file-{side}-{number}").touch()
        at /= f"{'a' if number % 2 else 'z'}-{number}"
    assert len(file_trees.files_below(str(top))) == 480


def test_levels_with_more_names_than_may_be_held_stay_open(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodelib.file_trees._NAMES", 30)
    at = top
    for _ in range(60):
        for number in range(4):
            (at / str(number)).mkdir()
        at /= "2"
    assert sum(step.kind is Kind.ENTER for step in Walk(str(top))) == 241
    monkeypatch.setattr("nodelib.file_trees._PINNED", 3)
    with pytest.raises(OSError, match="too many"):
        list(Walk(str(top)))


TREES = st.recursive(
    st.sampled_from(["file", "link", "fifo"]), lambda inner: st.lists(inner, max_size=4), max_leaves=25
)


def _make(path: Path, what: object, outside: Path) -> int:
    match what:
        case "file":
            path.write_text("x")
        case "link":
            path.symlink_to(outside)
        case "fifo":
            os.mkfifo(path)
        case list():
            path.mkdir()
            return 1 + sum(_make(path / f"{number}\n\udcff", one, outside) for number, one in enumerate(what))
    return 1


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_whatever_is_in_a_tree_is_seen_once_and_removed(tree: object) -> None:
    with tempfile.TemporaryDirectory() as base:
        outside = Path(base, "outside")
        outside.mkdir()
        (outside / "kept").touch()
        top = Path(base, "top")
        count = _make(top, [tree], outside)
        steps = list(Walk(str(top)))
        assert sum(step.kind in (Kind.ENTER, Kind.FILE) for step in steps) == count
        assert {step.kind for step in steps} <= {Kind.ENTER, Kind.FILE, Kind.LEAVE}
        file_trees.remove(str(top))
        assert os.listdir(base) == ["outside"] and os.listdir(outside) == ["kept"]


@pytest.mark.parametrize("kind", ["missing", "file", "link"])
def test_what_is_no_directory_is_removed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "x"
    if kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to(tmp_path / "outside")
    file_trees.remove(str(path))
    assert os.listdir(tmp_path) == ["outside"]


def test_files_that_appear_while_a_directory_is_emptied_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, added = tmp_path / "top" / "d", 0
    directory.mkdir(parents=True)
    (directory / "first").touch()
    rmdir = os.rmdir

    def late(name: str, *, dir_fd: int) -> None:
        nonlocal added
        if name == "d" and added < 20:
            added += 1
            (directory / f"late-{added}").touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", late)
    file_trees.remove(str(tmp_path / "top"))
    assert added == 20 and os.listdir(tmp_path) == []


def test_a_directory_that_is_filled_for_ever_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top").mkdir()
    rmdir = os.rmdir

    def late(name: str, *, dir_fd: int) -> None:
        (tmp_path / "top" / "again").touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", late)
    with pytest.raises(OSError, match="not empty"):
        file_trees.remove(str(tmp_path / "top"))


def test_a_directory_swapped_for_a_link_is_not_entered(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    for name in ("a", "b"):
        (top / name).mkdir()
    seen = []
    for step in Walk(str(top)):
        seen.append(step.name)
        if step.kind is Kind.ENTER and step.name == "top":
            for name in ("a", "b"):
                (top / name).rmdir()
                (top / name).symlink_to(outside)
    assert "kept" not in seen and seen.count("a") == seen.count("b") == 1


def test_a_file_that_is_renamed_meanwhile_is_shown_under_its_new_name(top: Path) -> None:
    for name in ("one", "two"):
        (top / name).touch()
    shown: list[str] = []
    walk = Walk(str(top))
    for step in walk:
        if step.kind is not Kind.FILE:
            continue
        if len(shown) < 5:
            os.rename(top / step.name, top / f"{step.name}+")
        shown.append(step.name)
        try:
            os.lstat(step.name, dir_fd=step.folder)
        except FileNotFoundError:
            walk.missed(step)
    assert sorted(shown)[-1].startswith("two") and len(shown) >= 7


def test_files_renamed_for_ever_are_reported(top: Path) -> None:
    (top / "x").touch()
    walk, last = Walk(str(top)), None
    for step in walk:
        last = step if step.kind is Kind.FAILED else last
        if step.kind is Kind.FILE:
            os.rename(top / step.name, top / ("y" if step.name == "x" else "x"))
            walk.missed(step)
    assert last is not None and "renamed" in str(last.error)


def test_a_deep_directory_that_is_moved_meanwhile_ends_the_walk(top: Path) -> None:
    deep(top, 80)
    moved = False
    with pytest.raises(OSError, match="moved while") as raised:
        for step in Walk(str(top)):
            if step.kind is Kind.FILE and not moved:
                moved = True
                os.rename(top / "d/d/d/d/d/d", top / "elsewhere")
    assert raised.value.errno is not None


def test_modes_do_not_matter_to_root(top: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (top / "closed").mkdir(mode=0)
    (top / "closed" / "f").touch()
    assert stat.S_IMODE(os.lstat(top / "closed").st_mode) == 0
    assert file_trees.files_below(str(top)) == {"closed/f"}
