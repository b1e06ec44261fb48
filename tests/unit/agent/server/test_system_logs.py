"""The host's log folder: files, folders, and links that may not lead out of it."""

from __future__ import annotations

import os
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
    assert find(str(root), path) == (SystemLogFile(str(root / found)) if found else None)


def test_a_folder_is_listed_in_order(root: Path) -> None:
    assert find(str(root), "") == SystemLogFolder(("a.log", "in", "out/", "pipe", "sub/"))
    assert find(str(root), "sub/") == SystemLogFolder(())
