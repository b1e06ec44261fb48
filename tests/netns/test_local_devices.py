"""Local PersistentVolumes on real block devices: formatted once, mounted once, bound into pods, never lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge.local_disk import LocalDisk
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.volumes import MountedVolume
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.local_volumes import LocalVolumes
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib import mounts
from nodelib.clock import SystemClock
from nodelib.errors import NodewrightError, Temporary
from nodelib.mountinfo import Mount
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod
from tests.fakes.claims import FakeClaimApi
from tests.netns.mount_namespace import isolated
from tests.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices")]

MIB = 1 << 20


def command(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def loop_device(file: Path, size: int = 32 * MIB) -> Iterator[str]:
    """A loop device on `file`, which is made with `size` bytes of zeros unless it exists."""
    if not file.exists():
        file.write_bytes(b"")
        os.truncate(file, size)
    device = command("losetup", "--find", "--show", str(file))
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


class Node:
    """The volumes of a node below `root`; each call is that of an agent that has just started."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.warned: list[str] = []

    def mount(self, uid: str, volume: LocalVolume, disk: LocalDisk | None = None) -> MountedVolume:
        paths = PodPaths(self.root, uid)

        async def work() -> MountedVolume:
            local = LocalVolumes(
                self.root, disk or LocalDisk(self.root), lambda pod, reason, _: self.warned.append(reason)
            )
            return PodDisk(self.root).set_up(paths, [*await local.mount(pod(), paths, [volume])])[volume.name]

        return asyncio.run(work())

    def release(self, uid: str) -> None:
        paths = PodPaths(self.root, uid)
        asyncio.run(LocalVolumes(self.root, LocalDisk(self.root), lambda *_: None).release(paths))
        PodDisk(self.root).tear_down(paths)

    def grow(self, uid: str, volume: LocalVolume, api: FakeClaimApi) -> list[str]:
        """An agent that has just started grows the pod's volume; the reasons of events about the pod."""
        reasons: list[str] = []

        class Events:
            def emit(self, about: Any, kind: str, reason: str, message: str, **more: Any) -> None:
                if about["kind"] == "Pod":
                    reasons.append(reason)

        async def work() -> None:
            local = LocalVolumes(self.root, LocalDisk(self.root), lambda *_: None)
            await local.mount(pod(meta={"uid": uid}), PodPaths(self.root, uid), [volume])
            task = asyncio.create_task(
                VolumeExpander((local,), Expansion(api, Events(), SystemClock()), Events(), SystemClock()).run()
            )
            try:
                await until(lambda: reasons, 60)
            finally:
                await cancel_and_wait(task)

        asyncio.run(work())
        return reasons

    def mounts(self) -> list[Mount]:
        return mounts.mounts_below(self.root)


def volume(device: str, **fields: Any) -> LocalVolume:
    return replace(LocalVolume("data", "pv-1", device), **fields)


@isolated
def test_pods_share_a_device_and_what_they_write_stays(tmp_path: Path) -> None:
    node = Node(tmp_path / "kubelet")
    with loop_device(tmp_path / "disk") as device:
        first = node.mount("a", volume(device, mount_options=("noatime",), fs_group=4242))
        Path(first.path, "said").write_text("kept")
        second = node.mount("b", volume(device, read_only=True))
        assert Path(second.path, "said").read_text() == "kept"
        with pytest.raises(OSError, match="Read-only"):
            Path(second.path, "more").write_text("x")
        assert os.stat(first.path).st_gid == 4242 and os.statvfs(first.path).f_flag & os.ST_NOATIME
        assert os.statvfs(second.path).f_flag & os.ST_NOATIME
        assert node.mount("a", volume(device, fs_group=4242)) == first
        assert [found.fs_type for found in node.mounts()] == ["ext4"] * 3
        node.release("a")
        assert Path(second.path, "said").read_text() == "kept" and len(node.mounts()) == 2
        node.release("b")
        assert node.mounts() == [] and os.listdir(tmp_path / "kubelet/plugins/kubernetes.io/local-volume/mounts") == []
        assert Path(node.mount("c", volume(device)).path, "said").read_text() == "kept"
        node.release("c")


@isolated
def test_sub_paths_of_a_device(tmp_path: Path) -> None:
    node, paths = Node(tmp_path / "kubelet"), PodPaths(str(tmp_path / "kubelet"), "a")
    with loop_device(tmp_path / "disk") as device:
        made = node.mount("a", volume(device))
        shown = PodDisk(node.root).bind_sub_path(made.path, "below/it", f"{paths.sub_paths}/pv-1/main/0")
        Path(shown, "file").write_text("x")
        assert Path(made.path, "below/it/file").exists()
        node.release("a")
        assert node.mounts() == [] and not os.path.exists(paths.pod)


def _killed_while(node: Node, wanted: LocalVolume, step: str) -> None:
    """The agent is killed as soon as it is about to do this step."""

    class Mortal(LocalDisk):
        def bind(self, source: str, target: str, *, read_only: bool) -> None:
            if step == "bind":
                os.kill(os.getpid(), signal.SIGKILL)
            super().bind(source, target, read_only=read_only)

        def unmount(self, path: str) -> None:
            if step in path:
                os.kill(os.getpid(), signal.SIGKILL)
            super().unmount(path)

    child = os.fork()
    if child == 0:
        if step == "bind":
            node.mount("a", wanted, Mortal(node.root))
        paths = PodPaths(node.root, "a")
        asyncio.run(LocalVolumes(node.root, Mortal(node.root), lambda *_: None).release(paths))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


@isolated
def test_an_agent_that_is_killed_between_the_mount_and_the_bind(tmp_path: Path) -> None:
    node = Node(tmp_path / "kubelet")
    with loop_device(tmp_path / "disk") as device:
        _killed_while(node, volume(device), "bind")
        assert len(node.mounts()) == 1
        made = node.mount("a", volume(device))
        Path(made.path, "file").write_text("x")
        assert len(node.mounts()) == 2
        node.release("a")
        _killed_while(node, volume(device), "bind")
        node.release("a")  # the pod was deleted meanwhile
        assert node.mounts() == []


@isolated
def test_an_agent_that_is_killed_between_the_two_unmounts(tmp_path: Path) -> None:
    node = Node(tmp_path / "kubelet")
    with loop_device(tmp_path / "disk") as device:
        node.mount("a", volume(device))
        _killed_while(node, volume(device), "local-volume/mounts")
        assert len(node.mounts()) == 1
        node.release("a")
        assert node.mounts() == []


@pytest.mark.parametrize("kind", ["partitions", "swap", "encrypted", "ext4 of somebody"])
@isolated
def test_foreign_data_is_never_formatted(tmp_path: Path, kind: str) -> None:
    file, node = tmp_path / "disk", Node(tmp_path / "kubelet")
    file.write_bytes(b"")
    os.truncate(file, 32 * MIB)
    if kind == "partitions":
        # A master boot record: one Linux partition of 8 MiB, beginning at 1 MiB.
        entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (16384).to_bytes(4, "little")
        with file.open("r+b") as raw:
            raw.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    elif kind == "swap":
        command("mkswap", str(file))
    elif kind == "encrypted":
        with file.open("r+b") as raw:
            raw.write(b"LUKS\xba\xbe\x00\x01")
    else:
        command("mkfs.ext4", "-q", "-F", str(file))
    wanted = {"fs_type": "xfs"} if kind == "ext4 of somebody" else {}
    before = file.read_bytes()
    with loop_device(file) as device:
        with pytest.raises(NodewrightError, match=r"MountVolume\.MountDevice failed"):
            node.mount("a", volume(device, **wanted))
        node.release("a")
        assert node.mounts() == []
    if kind != "ext4 of somebody":  # which fsck marks as checked
        assert file.read_bytes() == before
    assert command("blkid", "-p", "-s", "TYPE", "-o", "value", str(file)) == "ext4" or kind != "ext4 of somebody"


@isolated
def test_an_empty_device_that_is_only_read_is_not_formatted(tmp_path: Path) -> None:
    node = Node(tmp_path / "kubelet")
    with loop_device(tmp_path / "disk") as device:
        with pytest.raises(Temporary, match="in read-only mode"):
            node.mount("a", volume(device, read_only=True))
        node.release("a")
    assert not any((tmp_path / "disk").read_bytes())


@isolated
def test_a_loop_device_without_a_disk_is_not_formatted(tmp_path: Path) -> None:
    node = Node(tmp_path / "kubelet")
    with loop_device(tmp_path / "disk") as device:
        pass
    with pytest.raises(Temporary, match=r"failed to get disk format|does not exist"):
        node.mount("a", volume(device))
    node.release("a")


@isolated
def test_a_device_that_disappears(tmp_path: Path) -> None:
    node, link = Node(tmp_path / "kubelet"), tmp_path / "by-id"
    with loop_device(tmp_path / "disk") as device:
        link.symlink_to(device)
        made = node.mount("a", volume(str(link)))
        link.unlink()
        assert node.mount("a", volume(str(link))) == made  # an agent that starts leaves it alone
        with pytest.raises(Temporary, match=f'path "{link}" does not exist'):
            node.mount("b", volume(str(link)))
        with loop_device(tmp_path / "other") as another:
            link.symlink_to(another)
            with pytest.raises(Temporary, match="other pods still use"):
                node.mount("b", volume(str(link)))
            node.release("a")
            number = os.stat(node.mount("b", volume(str(link))).path).st_dev
            assert number == os.stat(another).st_rdev
            node.release("b")
        assert node.mounts() == []


def enlarge(file: Path, device: str) -> None:
    """The disk behind the device becomes twice as large."""
    os.truncate(file, 2 * file.stat().st_size)
    command("losetup", "--set-capacity", device)


def capacity(path: str) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def has_sys_resource() -> bool:
    """Whether this process may give a mounted ext4 more room: some containers' root may not."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("CapEff:")]
    return bool(int(line.split()[1], 16) >> 24 & 1)


def tools_for(kind: str, *programs: str) -> pytest.MarkDecorator:
    missing = [one for one in programs if shutil.which(one) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{kind} needs {', '.join(missing)}")


WITH_SYS_RESOURCE = pytest.mark.skipif(not has_sys_resource(), reason="needs CAP_SYS_RESOURCE: ext4 grows online")
GROWING = [
    pytest.param("ext4", 32 * MIB, id="ext4", marks=WITH_SYS_RESOURCE),
    pytest.param("xfs", 320 * MIB, id="xfs", marks=tools_for("xfs", "mkfs.xfs", "xfs_growfs")),
    pytest.param("btrfs", 160 * MIB, id="btrfs", marks=tools_for("btrfs", "mkfs.btrfs", "btrfs")),
]


@pytest.mark.parametrize(("kind", "size"), GROWING)
@isolated
def test_a_file_system_grows_while_a_pod_writes_to_it(tmp_path: Path, kind: str, size: int) -> None:
    node, api = Node(tmp_path / "kubelet"), FakeClaimApi(str(size))
    with loop_device(tmp_path / "disk", size) as device:
        wanted = volume(device, claim="c", fs_type=kind)
        made = node.mount("a", wanted)
        before = capacity(made.path)
        with Path(made.path, "said").open("w") as open_file:
            open_file.write("kept")
            enlarge(tmp_path / "disk", device)
            api.ask(str(2 * size))
            assert node.grow("a", wanted, api) == ["FileSystemResizeSuccessful"]
            open_file.write(" and more")
        assert before <= size < 1.5 * size < capacity(made.path)
        assert Path(made.path, "said").read_text() == "kept and more"
        assert (api.size, api.conditions, len(node.mounts())) == (str(2 * size), [], 2)
        node.release("a")
        assert node.mounts() == []


@pytest.mark.parametrize(("kind", "size"), GROWING)
@isolated
def test_a_file_system_that_was_too_small_when_its_pod_began(tmp_path: Path, kind: str, size: int) -> None:
    """The disk and the PersistentVolume had grown while no pod used them."""
    node, api = Node(tmp_path / "kubelet"), FakeClaimApi(str(size))
    with loop_device(tmp_path / "disk", size) as device:
        wanted = volume(device, claim="c", fs_type=kind)
        node.mount("a", wanted)
        node.release("a")
        enlarge(tmp_path / "disk", device)
        api.the_volume["spec"]["capacity"]["storage"] = str(2 * size)
        made = node.mount("b", wanted)
        assert node.grow("b", wanted, api) == ["FileSystemResizeSuccessful"]
        assert (api.size, capacity(made.path) > 1.5 * size) == (str(2 * size), True)
        node.release("b")


@isolated
def test_a_file_system_that_cannot_grow(tmp_path: Path) -> None:
    node, api, file = Node(tmp_path / "kubelet"), FakeClaimApi("32Mi"), tmp_path / "disk"
    with loop_device(file) as device:
        command("mkfs.ext2", "-q", "-F", device)
        wanted = volume(device, claim="c", fs_type="ext2")
        made = node.mount("a", wanted)
        before = capacity(made.path)
        enlarge(file, device)
        api.ask("64Mi")
        assert node.grow("a", wanted, api) == ["VolumeResizeFailed"]
        assert (api.size, capacity(made.path)) == ("32Mi", before)
        node.release("a")


@isolated
def test_what_a_pod_mounts_in_the_volume_does_not_keep_it(tmp_path: Path) -> None:
    node, outside = Node(tmp_path / "kubelet"), tmp_path / "outside"
    outside.mkdir()
    mounts.mount("tmpfs", str(outside), "tmpfs")
    (outside / "inner").mkdir()
    mounts.mount("tmpfs", str(outside / "inner"), "tmpfs")
    mounts.set_propagation(str(outside), mounts.MS_SHARED)
    with loop_device(tmp_path / "disk") as device:
        made = node.mount("a", volume(device))
        Path(made.path, "host").mkdir()
        mounts.mount(str(outside), f"{made.path}/host", "", mounts.MS_BIND | mounts.MS_REC)
        node.release("a")
        assert node.mounts() == [] and len(mounts.mounts_below(str(outside))) == 2
