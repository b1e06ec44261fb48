"""LocalVolumes: devices of local PersistentVolumes, formatted, mounted once and bound into pods, on disks in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.stats.model import FsUsage
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.volumes import HostPath
from agent.volumes.work.local_stats import LocalStats
from agent.volumes.work.local_volumes import LocalVolumes
from nodelib.errors import NodewrightError, Temporary
from tests.builders.pods import pod
from tests.fakes.local_disk import Disk, FakeLocalDisk

VOLUME = LocalVolume("data", "pv-1", "/dev/sdz")
GLOBAL = "/r/plugins/kubernetes.io/local-volume/mounts/pv-1"


def target(uid: str) -> str:
    return f"/r/pods/{uid}/volumes/kubernetes.io~local-volume/pv-1"


class World:
    def __init__(self) -> None:
        self.disk = FakeLocalDisk()
        self.disk.disks = {"/dev/sdz": Disk(7)}
        self.warned: list[tuple[str, str]] = []
        self.volumes = self.restarted()

    def restarted(self) -> LocalVolumes:
        def warn(_: Pod, reason: str, message: str) -> None:
            self.warned.append((reason, message))

        return LocalVolumes("/r", self.disk, warn)

    async def mount(self, uid: str, volume: LocalVolume = VOLUME) -> HostPath:
        return (await self.volumes.mount(pod(), PodPaths("/r", uid), [volume]))[0]

    async def release(self, uid: str) -> None:
        await self.volumes.release(PodPaths("/r", uid))

    @property
    def programs(self) -> list[str]:
        return [argv[0] for argv in self.disk.commands]


@pytest.fixture
def world() -> World:
    return World()


async def test_two_pods_share_a_device_that_is_formatted_once(world: World) -> None:
    made = await asyncio.gather(world.mount("a"), world.mount("b"))
    assert [one.path for one in made] == [target("a"), target("b")]
    assert world.programs == ["mkfs.ext4", "mount"]
    await world.release("a")
    assert set(world.disk.mounted) == {GLOBAL, target("b")}
    await world.release("b")
    assert (world.disk.mounted, world.disk.made) == ({}, set())


async def test_two_volumes_with_one_device_format_it_once(world: World) -> None:
    await asyncio.gather(world.mount("a"), world.mount("b", replace(VOLUME, spec_name="pv-2")))
    assert world.programs.count("mkfs.ext4") == 1


async def test_a_directory_is_used_in_place(world: World) -> None:
    world.disk.made.add("/mnt/d")
    found = await world.mount("a", replace(VOLUME, path="/mnt/d", fs_group=5))
    assert found == HostPath("data", "/mnt/d", "Directory", fs_group=5, relabels=True)
    assert (world.disk.mounted, world.disk.commands) == ({}, [])


@pytest.mark.parametrize("content", ["xfs", "LVM2_member", "crypto_LUKS", "partitions"])
async def test_what_is_on_a_device_is_never_formatted(world: World, content: str) -> None:
    world.disk.disks["/dev/sdz"].content = content
    with pytest.raises(NodewrightError, match="failed to mount device /dev/sdz") as raised:
        await world.mount("a")
    assert "MountVolume.MountDevice failed" in raised.value.message and "never formatted" in raised.value.action
    assert (world.programs, world.disk.disks["/dev/sdz"].content) == (["fsck", "mount"], content)
    await world.release("a")
    assert world.disk.made == set()


async def test_a_device_that_cannot_be_read_is_not_formatted(world: World) -> None:
    world.disk.disks["/dev/sdz"].problem = "Input/output error"
    with pytest.raises(Temporary, match="Input/output error"):
        await world.mount("a")
    assert world.programs == []
    world.disk.disks["/dev/sdz"] = Disk(7, "ext4")
    await world.mount("a")
    assert world.programs == ["fsck", "mount"]


async def test_errors_that_fsck_cannot_correct(world: World) -> None:
    world.disk.disks["/dev/sdz"] = Disk(7, "ext4", fsck=4)
    with pytest.raises(Temporary, match="could not correct them"):
        await world.mount("a")
    assert world.disk.mounted == {}


async def test_a_device_that_is_not_there(world: World) -> None:
    disk = world.disk.disks.pop("/dev/sdz")
    with pytest.raises(Temporary, match='volume "pv-1" : path "/dev/sdz" does not exist'):
        await world.mount("a")
    world.disk.disks["/dev/sdz"] = disk
    await world.mount("a")
    del world.disk.disks["/dev/sdz"]
    world.volumes = world.restarted()
    assert (await world.mount("a")).path == target("a")
    with pytest.raises(Temporary, match="does not exist"):
        await world.mount("b")
    await world.release("a")
    await world.release("b")
    assert (world.disk.mounted, world.disk.made) == ({}, set())


@pytest.mark.parametrize("step", ["run", "bind"])
async def test_an_agent_that_was_killed_goes_on(world: World, step: str) -> None:
    world.disk.fails_at = step
    with pytest.raises(KeyboardInterrupt):
        await world.mount("a")
    world.disk.fails_at, world.volumes = "", world.restarted()
    await world.mount("a")
    assert set(world.disk.mounted) == {GLOBAL, target("a")}
    assert world.programs == ["mkfs.ext4", "mount"]


@pytest.mark.parametrize("step", ["run", "bind"])
async def test_what_a_killed_agent_left_of_a_pod_is_released(world: World, step: str) -> None:
    world.disk.fails_at = step
    with pytest.raises(KeyboardInterrupt):
        await world.mount("a")
    world.disk.fails_at, world.volumes = "", world.restarted()
    await world.release("a")
    assert (world.disk.mounted, world.disk.made) == ({}, set())


@pytest.mark.parametrize("busy", [GLOBAL, target("a")])
async def test_a_busy_volume_is_released_later(world: World, busy: str) -> None:
    await world.mount("a")
    world.disk.busy.add(busy)
    with pytest.raises(OSError, match="busy"):
        await world.release("a")
    world.disk.busy.clear()
    world.volumes = world.restarted()
    await world.release("a")
    assert (world.disk.mounted, world.disk.made) == ({}, set())


async def test_a_command_that_is_not_installed(world: World) -> None:
    world.disk.missing = {"mkfs.xfs", "fsck"}
    with pytest.raises(Temporary, match=r"Install the package that has mkfs\.xfs"):
        await world.mount("a", replace(VOLUME, fs_type="xfs"))
    world.disk.disks["/dev/sdz"].content = "ext4"
    await world.mount("b")  # a check that cannot be made does not keep the volume away, as upstream


async def test_a_reader_before_a_writer(world: World) -> None:
    world.disk.disks["/dev/sdz"].content = "ext4"
    assert (await world.mount("a", replace(VOLUME, read_only=True))).read_only
    assert world.disk.mounted[GLOBAL][2]
    await world.mount("b")
    assert not world.disk.mounted[GLOBAL][2] and world.disk.mounted[target("a")][2]


async def test_the_first_pod_decides_on_the_group(world: World) -> None:
    assert (await world.mount("a", replace(VOLUME, fs_group=5))).fs_group == 5
    world.disk.gids[GLOBAL] = 5
    assert (await world.mount("b", replace(VOLUME, fs_group=6))).fs_group is None
    assert [reason for reason, _ in world.warned] == ["AlreadyMountedVolume"]
    await world.release("a")
    await world.release("b")
    assert (await world.mount("c", replace(VOLUME, fs_group=6))).fs_group == 6


async def test_another_device_at_the_same_path(world: World) -> None:
    await world.mount("a")
    world.disk.disks["/dev/sdz"] = Disk(8, "ext4")
    with pytest.raises(Temporary, match="other pods still use"):
        await world.mount("b")
    await world.release("a")
    await world.mount("b")
    assert world.disk.mounted[target("b")][0] == 8


async def test_what_pods_have_of_local_volumes_is_measured_where_they_have_it(world: World) -> None:
    folder = replace(VOLUME, name="folder", spec_name="pv-2", path="/srv/data", claim="files")
    raw = replace(VOLUME, name="raw", spec_name="pv-3", path="/dev/sdz", claim="raw", block=True)
    world.disk.made.add("/srv/data")
    for volume in (replace(VOLUME, claim="disk"), folder, raw):
        await world.mount("a", volume)
    sizes = {target("a"): 10, "/srv/data": 20}

    def filesystem(path: str) -> FsUsage | None:
        return FsUsage(at=1, capacity=sizes[path])

    stats = LocalStats(world.volumes, filesystem)
    assert {name: usage.capacity for name, usage in stats.latest()} == {("shop", "disk"): 10, ("shop", "files"): 20}
    shown = (await stats.by_pod())["a"]
    found = [(one.name, one.claim, one.usage.capacity) for one in shown]
    assert found == [("data", "disk", 10), ("folder", "files", 20)]
    await world.release("a")
    assert (stats.latest(), await stats.by_pod()) == ([], {})
