"""Checkpoint files on a real disk: replaced whole, kept when unreadable, failures that say where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.common.edge.checkpoint import CheckpointFiles
from nodelib.errors import Temporary


async def test_written_read_and_replaced(tmp_path: Path) -> None:
    files = CheckpointFiles(str(tmp_path / "kubelet"))
    assert await files.read("state") is None
    await files.write("state", "one, long")
    await files.write("state", "two")
    assert await files.read("state") == "two"
    found = os.listdir(tmp_path / "kubelet")
    assert found == ["state"]
    assert (tmp_path / "kubelet/state").stat().st_mode & 0o777 == 0o600


async def test_set_aside(tmp_path: Path) -> None:
    files = CheckpointFiles(str(tmp_path))
    (tmp_path / "state").write_bytes(b"\xff\xfe{")
    assert await files.read("state") is not None, "bytes that are no text are the reader's to judge"
    kept = await files.set_aside("state")
    assert Path(kept).read_bytes() == b"\xff\xfe{"
    assert await files.read("state") is None


async def test_setting_aside_that_fails_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match="set aside checkpoint"):
        await CheckpointFiles(str(tmp_path)).set_aside("state")


async def test_a_failure_names_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    files = CheckpointFiles(str(tmp_path))
    await files.write("state", "old")
    os.mkdir(tmp_path / ".state.new")
    with pytest.raises(Temporary) as caught:
        await files.write("state", "new")
    assert str(tmp_path / "state") in str(caught.value) and "tried again" in str(caught.value)
    assert await files.read("state") == "old"


async def test_a_folder_is_there_before_its_first_record(tmp_path: Path) -> None:
    # Upstream's suite waits for it after it has removed the records of an earlier run.
    folder = tmp_path / "image_manager" / "pulled"
    await CheckpointFiles(str(folder)).make()
    await CheckpointFiles(str(folder)).make()
    assert folder.is_dir()
    assert await CheckpointFiles(str(folder)).names() == []
    (tmp_path / "file").write_text("")
    with pytest.raises(Temporary, match="file"):
        await CheckpointFiles(str(tmp_path / "file" / "pulled")).make()


async def test_what_is_no_file_is_set_aside(tmp_path: Path) -> None:
    """The folder of the device manager's checkpoint is one that device plugins have: a pipe there held the start."""
    files = CheckpointFiles(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "loop", "folder"):
        assert await files.read(name) == ""
        await files.set_aside(name)
        assert await files.read(name) is None


async def test_a_file_without_end_is_neither_read_nor_written(tmp_path: Path) -> None:
    files = CheckpointFiles(str(tmp_path), most=1000)
    (tmp_path / "state").write_text("{" * 5000)
    assert await files.read("state") == ""
    with pytest.raises(Temporary, match="1001 characters"):
        await files.write("state", "{" * 1001)
    await files.write("state", "{" * 1000)
    assert await files.read("state") == "{" * 1000


async def test_something_in_the_way_of_what_is_set_aside(tmp_path: Path) -> None:
    """A plugin that had made a folder there kept every agent from starting."""
    files = CheckpointFiles(str(tmp_path))
    (tmp_path / "file").write_text("nonsense")
    (tmp_path / "file.unreadable" / "inside").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.unreadable").write_text("earlier nonsense")
    for name in ("file", "folder"):
        kept = await files.set_aside(name)
        assert await files.read(name) is None
        assert os.path.exists(kept)
