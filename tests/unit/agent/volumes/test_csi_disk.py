"""vol_data.json, in folders where CSI plugins can write too."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.model.csi import VolumeKey
from tests.cpu_time import least

DATA = {"driverName": "e.x", "volumeHandle": "1"}


def folder(root: Path, name: str) -> Path:
    return root / "pods" / "u1" / "volumes" / "kubernetes.io~csi" / name


def pipe(path: Path) -> None:
    os.mkfifo(path)


def pipe_that_stays_open(path: Path) -> None:
    """Until this process ends."""
    os.mkfifo(path)
    os.open(path, os.O_RDWR)


def loop(path: Path) -> None:
    path.symlink_to(path)


def without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def gigabyte(path: Path) -> None:
    with path.open("w") as file:
        file.truncate(1 << 30)


def of_other_types(path: Path) -> None:
    path.write_text('{"driverName": ["e.x"], "volumeHandle": {"a": 1}}')


@pytest.mark.parametrize("make", [pipe, pipe_that_stays_open, Path.mkdir, loop, without_end, gigabyte, of_other_types])
def test_what_is_no_file_of_ours_hides_no_other_volume(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The agent waited for a pipe for ever, failed for a folder or a loop, and read a gigabyte."""
    disk = CsiDisk(str(tmp_path))
    for name in ("a", "z"):
        disk.save(str(folder(tmp_path, name)), DATA)
    staged = tmp_path / "plugins" / "kubernetes.io" / "csi" / "e.x"
    disk.save(str(staged / "2"), DATA)
    for odd in (folder(tmp_path, "odd"), staged / "1"):
        odd.mkdir(parents=True)
        make(odd / "vol_data.json")
    took, found = least(lambda: disk.published(PodPaths(str(tmp_path), "u1")), tries=2)
    assert took < 0.5
    assert [one.spec_name for one in found] == ["a", "z"]
    assert disk.all_published() == {"u1": found}
    assert [one.key for one in disk.all_staged()] == [VolumeKey("e.x", "1")]


def test_only_what_can_be_read_again_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"1048\d+ bytes") as caught:
        CsiDisk(str(tmp_path)).save(str(folder(tmp_path, "a")), {**DATA, "volumeHandle": "x" * (1 << 20)})
    assert caught.value.errno == errno.EFBIG


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    folder(tmp_path, "a").parent.parent.mkdir(parents=True)
    folder(tmp_path, "a").parent.write_text("")
    assert CsiDisk(str(tmp_path)).all_published() == {"u1": []}
