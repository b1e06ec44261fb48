"""A volume that grew while no pod used it: its next pod begins when the node has grown it, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.plugins.model import PluginInfo
from agent.volumes.model.csi import EXPAND, STAGE, CsiVolume, DriverFacts
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_growth import CsiGrowth
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.claims import FakeClaimApi
from tests.fakes.clock import FakeClock
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver
from tests.waiting import until

MIB = 1 << 20
FACTS = DriverFacts("drv", "/p/drv.sock", "node-7", capabilities=frozenset({STAGE, EXPAND}))
VOLUME = CsiVolume("v", "pv-1", "drv", "h", claim="c", claim_size=10 * MIB, size=10 * MIB)
LARGER = replace(VOLUME, size=20 * MIB)
A, B = pod(container(), meta={"uid": "a"}), pod(container(), meta={"uid": "b"})


class Driver(FakeDriver):
    """One volume: its image, and the file system in it, which grows to it when it is staged.

    `idle_only`: a file system cannot grow while it is mounted.
    """

    def __init__(self, disk: FakeCsiDisk, facts: DriverFacts) -> None:
        super().__init__(disk, facts)
        self.image, self.file_system, self.idle_only = 10 * MIB, 10 * MIB, False

    async def stage(self, request: Json) -> None:
        await super().stage(request)
        self.file_system = self.image

    async def expand(self, request: Json) -> int:
        self.image = max(self.image, await super().expand(request))
        if self.idle_only and self.file_system < self.image:
            raise PluginError("it is in use", code="FAILED_PRECONDITION", obj="drv", step="expand")
        self.file_system = self.image
        return self.image


class World:
    def __init__(self) -> None:
        self.disk, self.api, self.claims, self.clock = FakeCsiDisk(), FakeCsiApi(), FakeClaimApi(), FakeClock()
        self.api.drivers["drv"] = {"spec": {"attachRequired": False}}
        self.driver = Driver(self.disk, FACTS)
        self.events: list[tuple[str, str]] = []

    async def restart(self) -> None:
        """Another run of the agent on the same disk."""
        self.drivers = CsiDrivers(self.api, lambda name, endpoint: self.driver, self.clock, lambda: None)
        await self.drivers.register(PluginInfo("CSIPlugin", "drv", "/p/drv.sock", ("1.0.0",)))

        async def nothing(_: Any) -> None: ...

        known = asyncio.Event()
        known.set()
        self.expansion = Expansion(self.claims, self, self.clock)
        self.grower = CsiGrower(self.drivers, self.api, self.expansion)
        deps = CsiVolumesDeps(self.drivers, self.api, self.disk, self.clock, nothing, known, nothing, self.grower)
        self.agent = CsiVolumes("/k", "n", deps)
        await self.agent.load()
        self.driver.calls.clear()

    def emit(self, about: Any, kind: str, reason: str, message: str, **more: Any) -> None:
        if about["kind"] != "PersistentVolumeClaim":
            self.events.append((about["metadata"]["uid"], reason))

    async def mount(self, who: Pod = A, volume: CsiVolume = LARGER) -> None:
        await self.agent.mount(who, PodPaths("/k", who.uid), [volume])

    @property
    def may_start(self) -> list[str]:
        return [one.pod.uid for one in self.agent.mounted_volumes()]

    def expander(self) -> VolumeExpander:
        growth = CsiGrowth(self.agent, self.drivers, self.grower)
        return VolumeExpander((growth,), self.expansion, self, self.clock)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.restart()
    made.claims.ask("20Mi")
    yield made


async def test_it_has_grown_before_its_pod_begins(world: World) -> None:
    await world.mount()
    assert world.driver.calls == ["stage", "publish", "expand"] and world.driver.file_system == 20 * MIB
    assert (world.claims.size, world.claims.conditions) == ("20Mi", [])
    assert world.events == [("a", "FileSystemResizeSuccessful")]


async def test_a_volume_that_has_its_size_costs_no_request(world: World) -> None:
    await world.mount(volume=VOLUME)
    assert world.driver.calls == ["stage", "publish"] and world.claims.reads == []


async def test_its_pod_waits_until_it_has_grown(world: World) -> None:
    world.driver.fail["expand"] = "INTERNAL"
    for _ in range(2):
        with pytest.raises(
            NodewrightError, match=r'SetUp failed for volume "pv-1" : it has to grow first: as the test'
        ):
            await world.mount()
        assert not world.may_start and world.claims.conditions == ["FileSystemResizePending", "NodeResizeError"]
    del world.driver.fail["expand"]
    await world.mount()
    assert world.may_start == ["a"] and (world.claims.size, world.claims.conditions) == ("20Mi", [])


async def test_what_can_never_grow_holds_up_no_pod(world: World) -> None:
    world.driver.fail["expand"] = "OUT_OF_RANGE"
    with pytest.raises(NodewrightError, match="has to grow first"):
        await world.mount()
    assert world.claims.states[-1] == "NodeResizeInfeasible"
    await world.mount()
    assert world.may_start == ["a"] and world.driver.calls.count("expand") == 1


async def test_what_cannot_grow_in_use_is_taken_off_the_node_first(world: World) -> None:
    world.driver.idle_only = True
    await world.mount()
    once = ["stage", "publish", "expand"]
    assert world.driver.calls == [*once, "unpublish", "unstage", *once] and world.driver.file_system == 20 * MIB
    assert (world.may_start, world.claims.size, world.claims.conditions) == (["a"], "20Mi", [])
    await world.agent.release(PodPaths("/k", "a"))
    assert not world.disk.mounted and not world.disk.files


async def test_what_another_pod_uses_stays_where_it_is(world: World) -> None:
    """It cannot grow now, which holds up no pod; and the driver is not asked again and again for a pod that runs."""
    world.driver.idle_only = True
    await world.mount(A, VOLUME)
    await world.mount(B)
    assert world.driver.calls == ["stage", "publish", "publish", "expand"] and world.may_start == ["a", "b"]
    assert world.claims.size == "10Mi"
    running = asyncio.create_task(world.expander().run())
    try:
        await until(lambda: world.events)
        for _ in range(30):
            await world.clock.advance(100)
            world.agent.new_mount.set()
            await until(lambda: not world.agent.new_mount.is_set())
        assert world.driver.calls.count("expand") == 2 and [reason for _, reason in world.events] == [
            "VolumeResizeFailed"
        ]
    finally:
        await cancel_and_wait(running)


async def test_a_driver_that_never_grows_what_is_mounted_holds_up_no_pod(world: World) -> None:
    world.driver.fail["expand"] = "FAILED_PRECONDITION"
    await world.mount()
    assert world.may_start == ["a"] and world.driver.calls.count("expand") == 2 and world.claims.size == "10Mi"


async def test_an_agent_that_was_restarted_meanwhile_takes_nothing_from_a_pod_that_may_run(world: World) -> None:
    world.driver.idle_only = True
    await world.mount(A, VOLUME)
    await world.restart()
    await world.mount()
    assert world.driver.calls == [] and world.may_start == ["a"]


async def test_a_size_that_is_no_longer_asked_for_is_given_up(world: World) -> None:
    """Only then can a controller take up what is asked for now (KEP-1790)."""
    world.driver.fail["expand"] = "INTERNAL"
    with pytest.raises(NodewrightError):
        await world.mount()
    world.claims.the_claim["spec"]["resources"]["requests"]["storage"] = "15Mi"
    with pytest.raises(NodewrightError):
        await world.mount()
    assert world.claims.states[-1] == "NodeResizeInfeasible"
    await world.mount()
    assert world.may_start == ["a"]
