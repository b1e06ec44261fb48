"""The folders of Go: who empties them, and what a run that was killed leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.binaries.edge.go_folders import empty_go_folders, go_folders, used_go_folders


def _said(line: str) -> None:
    assert line == "removing what Go left"


def _compile(folders: dict[str, str]) -> None:
    for name in ("GOCACHE", "GOTMPDIR"):
        Path(folders[name], "left").mkdir(parents=True)
    (Path(folders["GOMODCACHE"]) / "cache/download").mkdir(parents=True)
    (Path(folders["GOMODCACHE"]) / "k8s.io").mkdir(parents=True)


@pytest.fixture(autouse=True)
def _no_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMODCACHE", raising=False)


def test_the_last_one_leaves_only_the_archives_of_the_sources(tmp_path: Path) -> None:
    said = list[str]()
    with go_folders(tmp_path, said.append) as folders:
        _compile(dict(folders))
        assert all(Path(path).is_relative_to(tmp_path) for path in folders.values())
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "go-build",
        "go-mod",
        "go-mod/cache",
        "go-mod/cache/download",
    ]
    assert said == ["removing what Go left"]


def test_who_ends_first_leaves_them_to_the_other(tmp_path: Path) -> None:
    with used_go_folders(tmp_path, _said):
        with go_folders(tmp_path, _said) as folders:
            _compile(dict(folders))
        assert Path(folders["GOCACHE"], "left").is_dir()
        assert not Path(folders["GOTMPDIR"]).exists()
        assert not empty_go_folders(tmp_path)
    assert empty_go_folders(tmp_path)
    assert not Path(folders["GOCACHE"]).exists()


def test_what_was_compiled_before_a_failure_is_kept_for_the_next_run(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"), go_folders(tmp_path, _said) as folders:
        _compile(dict(folders))
        raise OSError("disk full")
    with go_folders(tmp_path, _said) as again:
        assert Path(again["GOCACHE"], "left").is_dir()
    assert not Path(again["GOCACHE"]).exists()


def test_a_module_cache_of_the_users_own_is_used_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "k8s.io").mkdir(parents=True)
    monkeypatch.setenv("GOMODCACHE", str(own))
    with go_folders(tmp_path / "cache", _said) as folders:
        assert "GOMODCACHE" not in folders
    assert (own / "k8s.io").is_dir()
