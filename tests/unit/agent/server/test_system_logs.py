"""The host's log folder: files, folders, and links that may not lead out of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from agent.server.edge.system_logs import find
from agent.server.model import SystemLogFile, SystemLogFolder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "log"
    (made / "sub").mkdir(parents=True)
    (made / "a.log").write_text("text")
    (made / "in").symlink_to("a.log")
    (made / "out").symlink_to(tmp_path)
    (tmp_path / "secret").write_text("secret")
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.log", "a.log"),
        ("in", "a.log"),
        ("sub/../a.log", "a.log"),
        ("none", None),
        ("pipe", None),
        ("out", None),
        ("out/secret", None),
        ("../secret", None),
        ("/etc/passwd", None),
    ],
)
def test_a_path_is_found_below_the_root_only(root: Path, path: str, found: str | None) -> None:
    one = find(str(root), path)
    if found is None:
        assert one is None
    else:
        assert isinstance(one, SystemLogFile) and one.path == str(root / found)
        with one.file:
            assert one.file.read() == b"text"


def test_what_is_swapped_for_a_link_or_a_pipe_meanwhile_leads_nowhere(root: Path) -> None:
    """A pod that has the folder swaps a file, or the folder above it, between the look and the opening."""
    swapped, inner = root / "swapped", root / "inner"
    inner.mkdir()
    (inner / "secret").write_text("text")
    end, seen = time.monotonic() + 3, set[bytes]()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            swapped.write_text("text")
            swapped.unlink()
            swapped.symlink_to(root.parent / "secret")
            swapped.unlink()
            os.mkfifo(swapped)
            swapped.unlink()
            inner.rename(root / "aside")
            inner.symlink_to(root.parent)
            inner.unlink()
            (root / "aside").rename(inner)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        while time.monotonic() < end:
            for path in ("swapped", "inner/secret"):
                one = find(str(root), path)
                if isinstance(one, SystemLogFile):
                    with one.file:
                        seen.add(one.file.read())
    finally:
        done.set()
        swapper.join()
    assert b"secret" not in seen and b"text" in seen


def test_a_zero_byte_is_no_path(root: Path) -> None:
    assert find(str(root), "a\0b") is None


def test_a_folder_is_listed_in_order(root: Path) -> None:
    assert find(str(root), "") == SystemLogFolder(("a.log", "in", "out/", "pipe", "sub/"))
    assert find(str(root), "sub/") == SystemLogFolder(())


def test_of_a_folder_of_thousands_the_first_names_are_shown(root: Path) -> None:
    """A pod that may write there: a page of a million names was put together on the event loop."""
    for number in range(10_050):
        (root / "sub" / str(number)).touch()
    found = find(str(root), "sub")
    assert isinstance(found, SystemLogFolder)
    assert len(found.names) == 10_000 and found.more
    whole = find(str(root), ".")
    assert isinstance(whole, SystemLogFolder) and not whole.more
