"""A pod that may write to /var/log puts other things in the place of logs."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from pathlib import Path

import pytest

from agent.common.edge.inotify import Inotify
from agent.logs.edge import log_folder, log_reader
from nodelib.errors import NotFound, Temporary


async def _never(sure: bool) -> bool:
    return False


@pytest.mark.parametrize("name", ["0.log", "0.log.gz"])
async def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """It was opened on the event loop: one `kubectl logs`, and the agent stood still."""
    os.mkfifo(tmp_path / name)
    path, inotify = str(tmp_path / "0.log"), Inotify("test")
    try:
        async with asyncio.timeout(10):
            for lines in (log_reader.read(path, None), log_reader.follow(path, 5, inotify, _never)):
                with pytest.raises(NotFound, match="not a regular file"):
                    await anext(lines)
    finally:
        inotify.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.write_text("of the node")
    return made


@pytest.mark.parametrize("other", ["link", "pipe"])
def test_what_is_no_log_is_not_packed(tmp_path: Path, secret: Path, other: str) -> None:
    """Root packed what a link led to, where the pod could read it."""
    path = tmp_path / "0.log.20260101-000000"
    if other == "link":
        path.symlink_to(secret)
    else:
        os.mkfifo(path)
    with pytest.raises(Temporary):
        log_folder.pack(str(path))
    assert not Path(f"{path}.gz").exists() and secret.read_text() == "of the node"


def test_packing_writes_through_no_link(tmp_path: Path, secret: Path) -> None:
    """The name of the draft is known beforehand: a link there had root write to any file."""
    path = tmp_path / "0.log.20260101-000000"
    path.write_text("lines\n")
    Path(f"{path}.tmp").symlink_to(secret)
    log_folder.pack(str(path))
    assert secret.read_text() == "of the node"
    assert gzip.decompress(Path(f"{path}.gz").read_bytes()) == b"lines\n" and not path.exists()


async def test_a_folder_of_very_many_files_is_read_in_part_and_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were listed, sorted and compared on the event loop, for each rotation and each `kubectl logs -f`."""
    for number in range(log_folder.MOST_FILES + 100):
        (tmp_path / f"0.log.{number:08}").touch()
    assert len(log_folder.names(str(tmp_path))) == log_folder.MOST_FILES
    (tmp_path / "0.log").write_text("2026-01-01T00:00:00Z stdout F a\n")
    listed: list[threading.Thread] = []

    def names(folder: str) -> list[str]:
        listed.append(threading.current_thread())
        return []

    monkeypatch.setattr(log_folder, "names", names)
    inotify = Inotify("test")
    try:
        found = [lines async for lines in log_reader.follow(str(tmp_path / "0.log"), None, inotify, _never)]
    finally:
        inotify.close()
    assert found and listed and threading.main_thread() not in listed
