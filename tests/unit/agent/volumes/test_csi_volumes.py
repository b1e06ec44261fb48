"""CSI volumes with drivers that fail and agents that restart; the disk outlives the agent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.plugins.model import PluginInfo
from agent.volumes.model.csi import STAGE, CsiVolume, DriverFacts, Published
from agent.volumes.plan.csi import attachment_name
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_limits import CsiLimits
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver, no_growth
from tests.waiting import until

FACTS = DriverFacts("drv", "/p/drv.sock", "node-7", capabilities=frozenset({STAGE}))
INFO = PluginInfo("CSIPlugin", "drv", "/p/drv.sock", ("1.0.0",))
VOLUME = CsiVolume("v", "pv", "drv", "h", fs_type="ext4", access_modes=("ReadWriteOnce",))
SCRATCH = CsiVolume("s", "s", "drv", "csi-s", ephemeral=True)


class World:
    """`agent` is the CSI part of one run of the agent; restart() begins another run on the same disk."""

    def __init__(self) -> None:
        self.disk, self.api, self.clock = FakeCsiDisk(), FakeCsiApi(), FakeClock()
        self.api.drivers["drv"] = {"spec": {}}
        self.api.attachments[attachment_name(VOLUME, "n")] = {"status": {"attached": True}}
        self.driver = FakeDriver(self.disk, FACTS)
        self.reported: list[frozenset[str]] = []
        self.pods_known = asyncio.Event()
        self.pods_known.set()

    async def restart(self, *, with_driver: bool = True) -> None:
        self.drivers = drivers = CsiDrivers(self.api, lambda name, endpoint: self.driver, self.clock, lambda: None)
        if with_driver:
            await drivers.register(INFO)

        async def in_use(names: frozenset[str]) -> None:
            self.reported.append(names)

        self.limits = CsiLimits(drivers, self.api, self.clock)
        deps = CsiVolumesDeps(
            drivers, self.api, self.disk, self.clock, in_use, self.pods_known, self.limits.exceeded,
            no_growth(drivers, self.api),
        )  # fmt: skip
        self.agent = CsiVolumes("/k", "n", deps)
        self.driver.calls.clear()
        await self.agent.load()

    async def mount(self, who: Pod, *volumes: CsiVolume) -> None:
        await self.agent.mount(who, PodPaths("/k", who.uid), list(volumes or (VOLUME,)))

    async def release(self, who: Pod) -> None:
        await self.agent.release(PodPaths("/k", who.uid))


@pytest.fixture
async def world() -> World:
    made = World()
    await made.restart()
    return made


A, B = pod(container(), meta={"uid": "a"}), pod(container(), meta={"uid": "b"})


async def test_two_pods_share_one_staging(world: World) -> None:
    await asyncio.gather(world.mount(A), world.mount(B))
    assert world.driver.calls == ["stage", "publish", "publish"]
    assert world.agent.names_in_use() == {"kubernetes.io/csi/drv^h"}
    await world.release(A)
    assert "unstage" not in world.driver.calls
    await world.release(B)
    assert world.driver.calls[-2:] == ["unpublish", "unstage"]
    assert not world.disk.files and not world.disk.mounted and not world.agent.names_in_use()


async def test_a_restarted_agent_needs_no_driver_for_mounted_volumes(world: World) -> None:
    await world.mount(A)
    await world.restart(with_driver=False)
    assert world.agent.names_in_use() == {"kubernetes.io/csi/drv^h"}
    await world.mount(A)
    assert world.driver.calls == []
    with pytest.raises(Temporary, match="not found in the list of registered CSI drivers"):
        await world.release(A)
    assert world.disk.mounted and world.agent.names_in_use()


@pytest.mark.parametrize("step", ["stage", "publish"])
async def test_a_call_that_timed_out_is_undone_with_the_pod(world: World, step: str) -> None:
    """The driver may still be working on it: what it was given stays recorded, across a restart too."""
    world.driver.fail[step] = "DEADLINE_EXCEEDED"
    with pytest.raises(NodewrightError, match=r"MountVolume.SetUp failed for volume \"pv\""):
        await world.mount(A)
    await world.restart()
    world.driver.fail.clear()
    await world.release(A)
    run = asyncio.create_task(world.agent.run())
    await settle(200)
    for _ in range(50):
        if not world.disk.files:
            break
        await asyncio.sleep(0.01)
    run.cancel()
    assert not world.disk.files and "unstage" in world.driver.calls


async def test_a_refusal_leaves_nothing_behind(world: World) -> None:
    world.driver.fail["publish"] = "INVALID_ARGUMENT"
    with pytest.raises(NodewrightError):
        await world.mount(A, SCRATCH)
    assert not world.disk.files


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "INVALID_ARGUMENT"])
async def test_a_volume_that_cannot_be_unstaged_keeps_no_pod(world: World, code: str) -> None:
    """Upstream: "should call NodeStage after previous NodeUnstage transient error" and "final error"."""
    world.driver.fail["unstage"] = code
    await world.mount(A)
    await world.release(A)  # its pod is gone
    assert world.agent.names_in_use() == {"kubernetes.io/csi/drv^h"}  # and the volume must not be detached
    await world.mount(B)
    assert world.driver.calls == ["stage", "publish", "unpublish", "unstage", "stage", "publish"]
    world.driver.fail.clear()
    await world.release(B)
    assert world.driver.calls[-1] == "unstage" and not world.disk.files and not world.agent.names_in_use()


async def test_a_volume_that_cannot_be_unstaged_is_tried_again(world: World) -> None:
    run = asyncio.create_task(world.agent.run())
    world.driver.fail["unstage"] = "INTERNAL"
    await world.mount(A)
    await world.release(A)
    for pause in (0.5, 1.0, 2.0):
        world.driver.calls.clear()
        await until(lambda: world.clock.sleeping == 3, 5)  # it, the next sweep, the next republishing
        await world.clock.advance(pause)
        await until(lambda: world.driver.calls == ["unstage"], 5)
    world.driver.fail.clear()
    await until(lambda: world.clock.sleeping == 3, 5)
    await world.clock.advance(4)
    await until(lambda: not world.disk.files and not world.agent.names_in_use(), 5)
    await cancel_and_wait(run)


async def test_a_pod_that_gives_up_releases_what_was_only_staged(world: World) -> None:
    world.driver.fail["publish"] = "INTERNAL"
    with pytest.raises(NodewrightError):
        await world.mount(A)
    await world.release(A)
    assert world.driver.calls[-1] == "unstage" and not world.disk.files


async def test_a_volume_that_nobody_attaches_is_not_listed_as_in_use(world: World) -> None:
    """Upstream: "should bringup pod after deploying CSIDriver attach=false". Its VolumeAttachment stays as long as the
    Node lists the volume."""
    await world.mount(A)
    assert world.agent.names_in_use()
    world.api.drivers["drv"] = {"spec": {"attachRequired": False}}
    assert not world.agent.names_in_use()
    del world.api.drivers["drv"]
    assert world.agent.names_in_use()


async def test_it_waits_for_the_attachment(world: World) -> None:
    del world.api.drivers["drv"]
    world.api.attachments.clear()
    waiting = asyncio.create_task(world.mount(A))
    for _ in range(12):
        await asyncio.sleep(0.01)
        await world.clock.advance(1)
    with pytest.raises(Temporary, match="no VolumeAttachment yet"):
        await waiting
    assert world.reported == [{"kubernetes.io/csi/drv^h"}] and world.driver.calls == []


async def test_ephemeral_volumes_need_a_driver_object_that_offers_them(world: World) -> None:
    with pytest.raises(Permanent, match="not supported"):
        await world.mount(A, SCRATCH)
    world.api.drivers["drv"] = {"spec": {"volumeLifecycleModes": ["Ephemeral"], "attachRequired": False}}
    await world.mount(A, SCRATCH)
    assert world.driver.calls == ["publish"] and not world.agent.names_in_use()


async def test_republished_until_the_pod_goes(world: World) -> None:
    world.api.drivers["drv"]["spec"]["requiresRepublish"] = True
    run = asyncio.create_task(world.agent.run())
    await world.mount(A)
    for _ in range(3):
        world.driver.fail["publish"] = "INTERNAL"  # the mount is left alone
        await asyncio.sleep(0.02)
        await world.clock.advance(61)
    await asyncio.sleep(0.05)
    assert world.driver.calls.count("publish") >= 2 and world.disk.mounted
    await world.release(A)
    run.cancel()


async def test_the_node_knows_its_drivers(world: World) -> None:
    assert world.api.the_csi_node is not None
    assert [one["nodeID"] for one in world.api.the_csi_node["spec"]["drivers"]] == ["node-7"]


async def test_a_driver_that_registers_under_a_name_that_is_taken_and_leaves_takes_nobody_along(world: World) -> None:
    """The first one was forgotten, and stayed so until its registrar was started anew."""
    facts = {"/p/drv.sock": FACTS, "/p/other.sock": replace(FACTS, endpoint="/p/other.sock", node_id="other")}
    drivers = CsiDrivers(
        world.api, lambda name, endpoint: FakeDriver(world.disk, facts[endpoint]), world.clock, lambda: None
    )

    def listed() -> list[str]:
        assert world.api.the_csi_node is not None
        return [one["nodeID"] for one in world.api.the_csi_node["spec"]["drivers"]]

    other = replace(INFO, endpoint="/p/other.sock")
    await drivers.register(INFO)
    await drivers.register(other)
    assert drivers.get("drv")[1].node_id == "other" and listed() == ["other"]
    await drivers.deregister(other)
    assert drivers.get("drv")[1].node_id == "node-7" and listed() == ["node-7"]
    await drivers.register(other)
    await drivers.deregister(INFO)
    assert drivers.get("drv")[1].node_id == "other" and listed() == ["other"]
    await drivers.deregister(other)
    assert not drivers.facts and not listed()


async def test_a_pod_with_thousands_of_volumes_asks_for_a_few_at_a_time(world: World) -> None:
    """Each of an inline volume is a program that formats it: all at once, they take the node from everybody else."""
    world.api.drivers["drv"] = {"spec": {"volumeLifecycleModes": ["Ephemeral"], "attachRequired": False}}
    at_once: list[int] = [0, 0]
    go = asyncio.Event()

    def counted(call: Callable[..., Awaitable[None]]) -> Any:
        async def asked(*given: Any) -> None:
            at_once[0] += 1
            at_once[1] = max(at_once)
            await go.wait()
            await call(*given)
            at_once[0] -= 1

        return asked

    world.driver.publish = counted(world.driver.publish)  # type: ignore[method-assign]
    world.driver.unpublish = counted(world.driver.unpublish)  # type: ignore[method-assign]
    names = [f"v{number}" for number in range(500)]
    volumes = [replace(SCRATCH, name=one, spec_name=one, handle=f"csi-{one}") for one in names]
    for work, call in ((world.mount(A, *volumes), "publish"), (world.release(A), "unpublish")):
        go.clear()
        at_once[1] = 0
        task = asyncio.create_task(work)
        await until(lambda: at_once[0] == 16, 5)
        go.set()
        await task
        assert (world.driver.calls.count(call), at_once[1]) == (500, 16)
    assert not world.disk.mounted


async def test_a_pod_that_ends_after_one_of_its_volumes_failed_gets_none_of_the_others(world: World) -> None:
    """Those that had not begun went on without the pod: mounted for nobody, and in use, so attached, for ever."""
    volumes = [replace(VOLUME, name=f"v{one}", spec_name=f"pv{one}", handle=f"h{one}") for one in range(40)]
    world.api.drivers["drv"] = {"spec": {"attachRequired": False}}
    go, asked = asyncio.Event(), list[str]()

    async def stage(request: Json) -> None:
        asked.append(request["volume_id"])
        if request["volume_id"] == "h0":
            raise PluginError("no", code="INTERNAL", obj="drv")
        await go.wait()

    world.driver.stage = stage  # type: ignore[method-assign]
    with pytest.raises(NodewrightError):
        await world.mount(A, *volumes)
    await until(lambda: len(asked) >= 16, 5)
    released = asyncio.create_task(world.release(A))
    await settle()
    go.set()
    await released
    await settle()
    assert len(asked) <= 17 and "publish" not in world.driver.calls
    assert not world.disk.files and not world.agent.names_in_use()


async def test_what_is_staged_stays_in_use_until_it_is_unstaged(world: World) -> None:
    """A controller detaches what the Node does not list, under a file system that is still mounted."""
    others = [replace(VOLUME, name=f"v{number}", spec_name=f"pv{number}", handle=f"h{number}") for number in range(3)]
    for one in others:
        world.api.attachments[attachment_name(one, "n")] = {"status": {"attached": True}}
    await world.mount(A, *others)
    seen: list[tuple[str, int]] = []
    unstage = world.driver.unstage

    async def look(handle: str, path: str) -> None:
        seen.append((handle, len(world.agent.names_in_use())))
        await unstage(handle, path)

    world.driver.unstage = look  # type: ignore[method-assign]
    await world.release(A)
    assert [number for _, number in seen] == [3, 2, 1]
    assert not world.agent.names_in_use()


async def test_a_record_that_is_being_written_when_the_pod_ends_is_found(world: World) -> None:
    """It came to the disk after the others were read: a pod that has gone had the volume, which stayed staged."""
    writing, looked, written = threading.Event(), threading.Event(), threading.Event()
    save, published = world.disk.save, world.disk.published

    def slow(folder: str, data: Mapping[str, str]) -> None:
        if "/pods/" in folder:
            writing.set()
            looked.wait(0.3)
        save(folder, data)
        if "/pods/" in folder:
            written.set()

    def look(paths: PodPaths) -> list[Published]:
        found = published(paths)
        if writing.is_set():
            looked.set()
        return found

    world.disk.save, world.disk.published = slow, look  # type: ignore[method-assign]
    fails = replace(VOLUME, name="x", spec_name="x", driver="none", handle="x")
    with pytest.raises(NodewrightError):
        await world.mount(A, VOLUME, fails)
    await until(writing.is_set, 5)
    await world.release(A)
    await until(written.is_set, 5)
    assert (world.disk.files, world.disk.mounted) == ({}, set())
