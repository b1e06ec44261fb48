"""VolumeExpander with LocalVolumes: claims that ask for more, file systems that grow while pods have them mounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.volumes.model.local import LocalVolume
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.growing import GrowingVolume
from agent.volumes.work.local_volumes import LocalVolumes
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib.command import Completed
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod
from tests.fakes.claims import FakeClaimApi
from tests.fakes.clock import FakeClock
from tests.fakes.local_disk import Disk, FakeLocalDisk
from tests.waiting import until

VOLUME = LocalVolume("data", "pv-1", "/dev/sdz", claim="c")
GLOBAL = "/r/plugins/kubernetes.io/local-volume/mounts/pv-1"
RESIZE = ("resize2fs", "/dev/sdz")


class SlowDisk(FakeLocalDisk):
    """A resize does not end before `released` is set; `asked` once it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = asyncio.Event(), asyncio.Event()
        self.released.set()

    async def run(self, argv: Sequence[str], timeout: float) -> Completed:
        assert 0 < timeout <= 3600
        if argv[0] == "resize2fs":
            self.asked.set()
            await self.released.wait()
        return await super().run(argv, timeout)


class World:
    def __init__(self) -> None:
        self.disk, self.api, self.clock = SlowDisk(), FakeClaimApi(), FakeClock()
        self.disk.disks = {"/dev/sdz": Disk(7)}
        self.events: list[tuple[str, str, str]] = []
        self.of_claim: list[tuple[str, str, str]] = []
        self.local, self.task = self.started()

    def started(self) -> tuple[LocalVolumes, asyncio.Task[None]]:
        local = LocalVolumes("/r", self.disk, lambda *_: None)
        expander = VolumeExpander((local,), Expansion(self.api, self, self.clock), self, self.clock)
        return local, asyncio.create_task(expander.run())

    async def restart(self) -> None:
        """Another agent on the same node; nobody has told it of pods yet."""
        await self.stop()
        self.local, self.task = self.started()

    async def stop(self) -> None:
        await cancel_and_wait(self.task)

    def emit(self, about: Any, kind: str, reason: str, message: str, **more: Any) -> None:
        of_claim = about["kind"] == "PersistentVolumeClaim"
        (self.of_claim if of_claim else self.events).append(
            (about["uid"] if of_claim else about["metadata"]["uid"], reason, message)
        )

    async def mount(self, uid: str = "a", volume: LocalVolume = VOLUME) -> None:
        await self.local.mount(self.pod(uid), PodPaths("/r", uid), [volume])

    async def release(self, uid: str = "a") -> None:
        await self.local.release(PodPaths("/r", uid))

    def pod(self, uid: str) -> Pod:
        return pod(meta={"uid": uid, "namespace": "ns", "name": uid}, nodeName="n1")

    async def look(self) -> None:
        """The expander looks at all volumes, as it does after ten seconds, and has ended with them."""
        before = len(self.api.reads)
        self.local.new_mount.set()
        await until(lambda: len(self.api.reads) > before)
        await self.quiet()

    async def quiet(self) -> None:
        await until(lambda: not [one for one in asyncio.all_tasks() if one.get_name().startswith("('expand'")])

    async def resize_begins(self) -> None:
        """The claim asks for more, and the resize of the file system waits until `disk.released` is set."""
        self.disk.released.clear()
        self.disk.disks["/dev/sdz"].size = 20
        self.api.ask("20Mi")
        self.local.new_mount.set()
        await self.disk.asked.wait()

    async def grow(self, size: str = "20Mi") -> None:
        """The disk has grown, and then the user asks for it."""
        await self.quiet()
        self.disk.disks["/dev/sdz"].size = 20
        self.api.ask(size)
        await self.look()

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.disk.released.set()
    await made.stop()


async def test_a_file_system_grows_while_it_is_mounted(world: World) -> None:
    await world.mount()
    await world.grow()
    assert (world.disk.disks["/dev/sdz"].used, world.disk.commands[-1]) == (20, RESIZE)
    assert (world.api.size, world.api.states, world.api.conditions) == ("20Mi", ["NodeResizeInProgress", "done"], [])
    assert world.events == [
        ("a", "FileSystemResizeSuccessful", 'MountVolume.NodeExpandVolume succeeded for volume "pv-1" n1')
    ]
    assert world.of_claim == [("uid-of-c", *world.events[0][1:])]
    await world.look()
    assert world.disk.commands.count(RESIZE) == 1 and len(world.api.states) == 2


@pytest.mark.parametrize(
    ("kind", "argv"),
    [("xfs", ("xfs_growfs", "-d", GLOBAL)), ("btrfs", ("btrfs", "filesystem", "resize", "max", GLOBAL))],
)
async def test_other_file_systems(world: World, kind: str, argv: tuple[str, ...]) -> None:
    await world.mount(volume=replace(VOLUME, fs_type=kind))
    await world.grow()
    assert (world.disk.commands[-1], world.disk.disks["/dev/sdz"].used, world.api.size) == (argv, 20, "20Mi")


async def test_a_volume_that_had_grown_before_it_was_mounted(world: World) -> None:
    """Its claim need not ask for it: the administrator has made the PersistentVolume larger."""
    world.disk.disks["/dev/sdz"] = Disk(7, "ext4", size=20, used=10)
    world.api.the_volume["spec"]["capacity"]["storage"] = "20Mi"
    await world.mount()
    await until(lambda: world.api.size == "20Mi")
    assert world.disk.disks["/dev/sdz"].used == 20


async def test_only_the_claim_is_read_again_and_again(world: World) -> None:
    await world.mount()
    await until(lambda: world.api.reads == ["claim ns/c", "volume pv-1"])
    await world.quiet()
    await world.look()
    assert world.api.reads == ["claim ns/c", "volume pv-1", "claim ns/c"] and not world.api.states


@pytest.mark.parametrize("kind", ["directory", "raw device"])
async def test_nothing_to_grow_but_the_status(world: World, kind: str) -> None:
    if kind == "directory":
        del world.disk.disks["/dev/sdz"]
        world.disk.made.add("/dev/sdz")
        await world.mount()
        world.api.ask("20Mi")
        await world.look()
    else:
        await world.mount(volume=replace(VOLUME, block=True))
        await world.grow()
    assert (world.api.size, world.api.conditions, world.disk.commands) == ("20Mi", [], [])


@pytest.mark.parametrize("fields", [{"read_only": True}, {"mount_options": ("ro",)}], ids=["the pod", "the volume"])
async def test_what_is_only_read_is_left_alone(world: World, fields: dict[str, Any]) -> None:
    world.disk.disks["/dev/sdz"] = Disk(7, "ext4", size=20, used=10)
    world.api.ask("20Mi")
    await world.mount(volume=replace(VOLUME, **fields))
    await until(lambda: world.events)
    text = 'MountVolume.NodeExpandVolume failed for volume "pv-1" requested read-only file system'
    assert world.events == [("a", "FileSystemResizeFailed", text)]
    assert (world.api.size, world.api.states, RESIZE in world.disk.commands) == ("10Mi", [], False)
    if "read_only" in fields:
        await world.mount("b")
        await until(lambda: world.api.size == "20Mi")
        await world.quiet()
        assert [(uid, reason) for uid, reason, _ in world.events[1:]] == [("b", "FileSystemResizeSuccessful")]


async def test_pods_that_share_a_volume_grow_it_once(world: World) -> None:
    await world.mount("a")
    await world.mount("b", replace(VOLUME, read_only=True))
    await world.mount("c")
    await world.grow()
    assert world.disk.commands.count(RESIZE) == 1 and world.reasons == ["FileSystemResizeSuccessful"]


async def test_after_a_restart(world: World) -> None:
    """mount() is called again for the pods that run; a resize that the last agent had begun is made again."""
    await world.mount()
    await world.quiet()
    await world.resize_begins()
    await world.restart()
    world.disk.released.set()
    assert (world.api.size, world.disk.disks["/dev/sdz"].used) == ("10Mi", 10)
    await world.mount()
    await until(lambda: world.api.size == "20Mi")
    assert world.disk.disks["/dev/sdz"].used == 20
    assert world.api.states == ["NodeResizeInProgress", "done"], "what the claim says already is not said again"


async def test_a_pod_that_ends_meanwhile(world: World) -> None:
    """Its volume is unmounted after the resize, and one that is unmounted does not grow."""
    await world.mount()
    await world.quiet()
    await world.resize_begins()
    released = asyncio.create_task(world.release())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(released), 0.5)
    assert GLOBAL in world.disk.mounted and not world.local.growing()
    world.disk.released.set()
    await released
    assert GLOBAL not in world.disk.mounted and world.disk.disks["/dev/sdz"].used == 20
    assert world.events[-1][1] == "FileSystemResizeSuccessful"


async def test_a_volume_that_is_unmounted_first_does_not_grow(world: World) -> None:
    await world.mount()
    (one,) = world.local.growing()
    await world.release()
    assert not await one.grow(20) and RESIZE not in world.disk.commands


async def test_a_hung_resize_holds_up_no_other_volume(world: World) -> None:
    world.disk.disks["/dev/sdy"] = Disk(8)
    await world.mount("b", replace(VOLUME, spec_name="pv-0", path="/dev/sdy", claim="other"))
    await world.mount()
    await world.quiet()
    world.disk.released.clear()
    world.api.ask("20Mi")
    world.local.new_mount.set()
    await world.disk.asked.wait()
    world.local.new_mount.set()
    before = world.api.reads.count("claim ns/other")
    await until(lambda: world.api.reads.count("claim ns/other") > before)


async def test_a_failure_is_reported_once_and_tried_again_later(world: World) -> None:
    await world.mount()
    world.disk.missing = {"resize2fs"}
    await world.grow()
    (event,) = world.events
    assert event[:2] == ("a", "VolumeResizeFailed")
    assert event[2].startswith('NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : ')
    assert "resize2fs /dev/sdz: cannot start" in event[2] and "e2fsprogs" in event[2]
    assert world.api.size == "10Mi" and world.api.conditions == ["FileSystemResizePending", "NodeResizeError"]
    said = len(world.api.states)
    for pause in (10, 20, 40, 80, 122, 122):
        reads = len(world.api.reads)
        await world.clock.advance(pause - 1)
        world.local.new_mount.set()
        await until(lambda: not world.local.new_mount.is_set())
        await world.quiet()
        assert len(world.api.reads) == reads, f"it is tried again after {pause} s"
        await world.clock.advance(1)
        await world.look()
    assert len(world.events) == 1 and len(world.api.states) == said
    world.disk.missing = set()
    await world.clock.advance(122)
    await world.look()
    assert (world.api.size, world.reasons[1:]) == ("20Mi", ["FileSystemResizeSuccessful"])
    assert world.api.conditions == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"content": "ext2"}, "resize of format ext2 is not supported for device /dev/sdz", id="ext2"),
        pytest.param({"problem": "Input/output error", "content": ""}, "failed to get disk format", id="broken"),
        pytest.param({"number": 8}, "another device is mounted for the volume", id="another disk"),
        pytest.param(None, 'path "/dev/sdz" does not exist', id="unplugged"),
    ],
)
async def test_a_device_that_cannot_grow(world: World, change: dict[str, Any] | None, problem: str) -> None:
    await world.mount()
    await world.quiet()
    found = world.disk.disks.pop("/dev/sdz")
    if change is not None:
        world.disk.disks["/dev/sdz"] = replace(found, size=20, **change)
    world.api.ask("20Mi")
    await world.look()
    ((_, reason, message),) = world.events
    assert reason == "VolumeResizeFailed" and problem in message and world.api.size == "10Mi"
    assert RESIZE not in world.disk.commands


@pytest.mark.parametrize(
    ("code", "states"),
    [
        pytest.param("OUT_OF_RANGE", ["NodeResizeInProgress", "NodeResizeInfeasible"], id="refused for good"),
        pytest.param("UNAVAILABLE", ["NodeResizeInProgress"], id="not now"),
    ],
)
async def test_a_driver_that_refuses(world: World, code: str, states: list[str]) -> None:
    async def refuse(_size: int) -> bool:
        raise PluginError("no", code=code, obj="drv", step="expand")

    class Source:
        def __init__(self) -> None:
            self.new_mount = asyncio.Event()
            self.new_mount.set()

        def growing(self) -> list[GrowingVolume]:
            return [GrowingVolume(world.pod("a"), "pv-1", "c", False, "drv", refuse)]

    world.api.ask("20Mi")
    task = asyncio.create_task(
        VolumeExpander((Source(),), Expansion(world.api, world, world.clock), world, world.clock).run()
    )
    try:
        await until(lambda: world.events, 30)
    finally:
        await cancel_and_wait(task)
    assert (world.reasons, world.api.states) == (["VolumeResizeFailed"], states)
    assert ("NodeResizeError" in world.api.conditions) == (len(states) == 2)
