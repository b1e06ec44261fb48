"""A full disk: what was there stays whole, no draft is left, and the next try succeeds once there is space."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import atomic
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.volumes import AtomicVolume, EmptyDir, FileProjection, HostPath
from nodelib import mounts
from nodelib.errors import Temporary
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns

SIZE, BLOCK = 1 << 20, 4096


class Disk:
    """A file system of 1 MiB and a limited number of inodes."""

    def __init__(self, path: Path, inodes: int = 0) -> None:
        self.path = path
        mounts.mount("small", str(path), "tmpfs", data=f"size={SIZE}" + (f",nr_inodes={inodes}" if inodes else ""))

    def fill(self, leave: int = 0) -> None:
        """Until only `leave` blocks are left."""
        with open(self.path / "ballast", "ab") as file:
            free = os.statvfs(self.path).f_bfree - leave
            file.write(b"x" * max(free, 0) * BLOCK)
        assert os.statvfs(self.path).f_bfree == leave

    def take_inodes(self, leave: int) -> None:
        for number in range(os.statvfs(self.path).f_ffree - leave):
            (self.path / f"inode-{number}").touch()

    def free(self) -> None:
        for path in [self.path / "ballast", *self.path.glob("inode-*")]:
            path.unlink(missing_ok=True)


def files(**content: str) -> dict[str, FileProjection]:
    return {name.replace("__", "/"): FileProjection(text.encode(), 0o644) for name, text in content.items()}


def seen(volume: Path) -> dict[str, str]:
    """What a reader of the volume sees; everything else in it is a remainder."""
    names = [name for name in os.listdir(volume) if not name.startswith("..")]
    tops = [volume / name for name in names]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file()]
    return {str(path.relative_to(volume)): path.read_text() for path in found}


def hidden(volume: Path) -> list[str]:
    return sorted(name for name in os.listdir(volume) if name.startswith(".."))


BIG = "y" * 20_000


@pytest.mark.parametrize("leave", range(6), ids=lambda leave: f"{leave} blocks left")
@pytest.mark.parametrize("change", [{"a": BIG, "b": "2"}, {"a": "1", "d__e__f": BIG}], ids=["bigger", "deeper"])
def test_a_volume_keeps_its_content(tmp_path: Path, leave: int, change: dict[str, str]) -> None:
    @isolated
    def run() -> None:
        disk = Disk(tmp_path)
        volume = tmp_path / "volume"
        volume.mkdir()
        atomic.write(str(volume), files(a="1", old="0"))
        before = hidden(volume)
        disk.fill(leave)
        with pytest.raises(OSError, match="No space left") as raised:
            atomic.write(str(volume), files(**change))
        assert raised.value.errno == errno.ENOSPC
        assert seen(volume) == {"a": "1", "old": "0"} and hidden(volume) == before
        disk.free()
        assert atomic.write(str(volume), files(**change))
        assert seen(volume) == {name.replace("__", "/"): text for name, text in change.items()}
        assert len(hidden(volume)) == 2

    run()


@pytest.mark.parametrize("leave", range(8), ids=lambda leave: f"{leave} inodes left")
def test_a_volume_without_inodes_recovers(tmp_path: Path, leave: int) -> None:
    """Each step may be the one that fails: the reader sees all of the old or all of the new."""

    @isolated
    def run() -> None:
        disk = Disk(tmp_path, inodes=64)
        volume = tmp_path / "volume"
        volume.mkdir()
        atomic.write(str(volume), files(a="1", old="0"))
        disk.take_inodes(leave)
        wanted = files(a="2", b="2", c="2")
        try:
            atomic.write(str(volume), wanted)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            assert (volume / "a").read_text() in ("1", "2")
            assert len([name for name in hidden(volume) if name.startswith("..data_tmp")]) == 0
            if (volume / "a").read_text() == "1":
                assert seen(volume) == {"a": "1", "old": "0"} and len(hidden(volume)) == 2
        disk.free()
        atomic.write(str(volume), wanted)
        assert seen(volume) == {"a": "2", "b": "2", "c": "2"}
        assert len(hidden(volume)) == 2 and "old" not in os.listdir(volume)
        assert not atomic.write(str(volume), wanted)

    run()


@isolated
def test_setting_up_volumes_says_what_to_do(tmp_path: Path) -> None:
    disk, paths = Disk(tmp_path), PodPaths(str(tmp_path), "u1")
    settings = AtomicVolume("c", "kubernetes.io~configmap", files(a=BIG), False)
    disk.fill(3)
    for _ in range(3):
        with pytest.raises(Temporary, match=r'volume "c" .*No space left') as raised:
            PodDisk(str(tmp_path)).set_up(paths, [EmptyDir("e"), settings])
        assert "Free disk space" in raised.value.action
        assert hidden(Path(paths.volume(settings.plugin, "c"))) == []
    disk.free()
    made = PodDisk(str(tmp_path)).set_up(paths, [EmptyDir("e"), settings])
    assert seen(Path(made["c"].path)) == {"a": BIG}
    disk.fill()
    PodDisk(str(tmp_path)).tear_down(paths)
    assert not os.path.exists(paths.pod)


@isolated
def test_a_hosts_file_keeps_its_content_and_its_inode(tmp_path: Path) -> None:
    """Containers have it mounted: neither a part of it nor another file may stand there."""
    disk, path = Disk(tmp_path), tmp_path / "etc-hosts"
    pods = PodDisk(str(tmp_path))
    pods.write_text(str(path), "127.0.0.1 localhost\n", 0o644)
    before = os.stat(path).st_ino
    disk.fill(2)
    with pytest.raises(OSError, match="No space left"):
        pods.write_text(str(path), BIG, 0o644)
    assert path.read_text() == "127.0.0.1 localhost\n"
    disk.free()
    for text in (BIG, "", "short\n"):
        pods.write_text(str(path), text, 0o644)
        assert (path.read_text(), os.stat(path).st_ino) == (text, before)


@isolated
def test_a_hosts_file_that_is_right_is_not_touched(tmp_path: Path) -> None:
    """At each start of a container, while others of the pod read it."""
    path = tmp_path / "etc-hosts"
    PodDisk(str(tmp_path)).write_text(str(path), "x\n", 0o644)
    os.utime(path, (1, 1))
    PodDisk(str(tmp_path)).write_text(str(path), "x\n", 0o644)
    assert os.stat(path).st_mtime == 1


def _csi(root: Path, text: str) -> None:
    CsiDisk(str(root)).save(str(root / "plugins"), {"driverName": "d", "volumeHandle": text})


def _checkpoint(root: Path, text: str) -> None:
    asyncio.run(CheckpointFiles(str(root / "plugins")).write("state", text))


@pytest.mark.parametrize("save", [_csi, _checkpoint])
def test_records_stay_whole(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    @isolated
    def run() -> None:
        disk = Disk(tmp_path)
        (tmp_path / "plugins").mkdir()
        save(tmp_path, "old")
        (record,) = (tmp_path / "plugins").iterdir()
        before = record.read_bytes()
        disk.fill()
        with pytest.raises((OSError, Temporary), match="No space left"):
            save(tmp_path, BIG)
        assert record.read_bytes() == before and list((tmp_path / "plugins").iterdir()) == [record]
        disk.free()
        save(tmp_path, BIG)
        assert BIG.encode() in record.read_bytes()

    run()


@isolated
def test_a_marker_of_ownership_is_written_again(tmp_path: Path) -> None:
    disk, paths, volume = Disk(tmp_path, inodes=64), PodPaths(str(tmp_path), "u1"), tmp_path / "claim"
    volume.mkdir()
    plan = HostPath("h", str(volume), "Directory", fs_group=4242)
    PodDisk(str(tmp_path)).set_up(paths, [])
    disk.take_inodes(0)
    with pytest.raises(Temporary, match="No space left"):
        PodDisk(str(tmp_path)).set_up(paths, [plan])
    disk.free()
    assert PodDisk(str(tmp_path)).set_up(paths, [plan])["h"].path == str(volume)
    assert os.stat(volume).st_gid == 4242
