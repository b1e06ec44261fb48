"""A CSI driver that does not answer holds the volumes of its own, not the rounds of the agent over all volumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.plugins.model import PluginInfo
from agent.stats.model import FsUsage
from agent.volumes.model.csi import EXPAND, STAGE, STATS, CsiVolume, DriverFacts
from agent.volumes.plan.csi_node import check_facts
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_growth import CsiGrowth
from agent.volumes.work.csi_stats import CsiStats
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver, NoEvents
from tests.waiting import until


class Driver(FakeDriver):
    """Does not answer while it `hangs`."""

    hangs = False

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()

    async def publish(self, request: Json) -> None:
        await super().publish(request)
        await self._answer()

    async def unstage(self, handle: str, path: str) -> None:
        await super().unstage(handle, path)
        await self._answer()

    async def expand(self, request: Json) -> int:
        size = await super().expand(request)
        await self._answer()
        return size

    async def usage(self, handle: str, path: str) -> list[Json]:
        self._asked("usage")
        await self._answer()
        return [{"unit": 1, "total": 10, "used": 1, "available": 9}]


class ClaimApi(FakeCsiApi):
    """Every claim asks for more than its volume has."""

    async def claim(self, namespace: str, name: str) -> Json | None:
        return {"spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": {"capacity": {"storage": "1Gi"}}}

    async def volume(self, name: str) -> Json | None:
        return {"spec": {"capacity": {"storage": "2Gi"}}}

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None: ...


class World:
    """Two drivers, each with a volume of a pod of its own."""

    def __init__(self) -> None:
        self.disk, self.api, self.clock = FakeCsiDisk(), ClaimApi(), FakeClock()
        self.made: dict[str, Driver] = {}
        self.tasks: list[asyncio.Task[None]] = []
        known = asyncio.Event()
        known.set()
        self.drivers = CsiDrivers(self.api, self._dial, self.clock, lambda: None)

        async def in_use(names: frozenset[str]) -> None: ...

        async def exceeded(name: str) -> None: ...

        self.expansion = Expansion(self.api, NoEvents(), self.clock)
        self.grower = CsiGrower(self.drivers, self.api, self.expansion)
        deps = CsiVolumesDeps(self.drivers, self.api, self.disk, self.clock, in_use, known, exceeded, self.grower)
        self.volumes = CsiVolumes("/k", "n", deps)

    def _dial(self, name: str, endpoint: str) -> Driver:
        facts = DriverFacts(name, endpoint, "id", capabilities=frozenset({STAGE, STATS, EXPAND}))
        self.made[name] = Driver(self.disk, facts)
        return self.made[name]

    async def start(self) -> World:
        for name in ("hung", "good"):
            self.api.drivers[name] = {"spec": {"attachRequired": False, "requiresRepublish": True}}
            await self.drivers.register(PluginInfo("CSIPlugin", name, f"/p/{name}.sock", ("1.0.0",)))
        # The hung one comes first in every round.
        for number, name in enumerate(("hung", "hung", "good")):
            volume = CsiVolume("v", f"pv{number}", name, f"h{number}", claim=f"claim{number}")
            await self.volumes.mount(self.pod(number), PodPaths("/k", f"p{number}"), [volume])
        for driver in self.made.values():
            driver.calls.clear()
        self.made["hung"].hangs = True
        return self

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def pod(self, number: int) -> Pod:
        return pod(container(), meta={"uid": f"p{number}"})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = await World().start()
    yield made
    await cancel_and_wait(*made.tasks)


async def test_others_are_republished_each_minute(world: World) -> None:
    world.run(world.volumes.run())
    for times in range(1, 4):
        await until(lambda: bool(world.clock.sleeping))
        await world.clock.advance(61)
        await until(lambda: world.made["good"].calls.count("publish") >= times, 5)  # noqa: B023 - called at once
    assert world.made["hung"].calls.count("publish") == 2, "a call that hangs is not made again"


async def test_others_are_unstaged(world: World) -> None:
    """Volumes that pods of an earlier agent left behind."""
    for number in range(3):
        for folder in [one for one in world.disk.files if f"/pods/p{number}/" in one]:
            world.disk.mounted.discard(f"{folder}/mount")
            del world.disk.files[folder]
        world.volumes._stagings._users.clear()  # as after a restart
    world.run(world.volumes.run())
    await until(lambda: "unstage" in world.made["good"].calls, 5)


async def test_others_grow(world: World) -> None:
    growth = CsiGrowth(world.volumes, world.drivers, world.grower)
    expander = VolumeExpander((growth,), world.expansion, NoEvents(), world.clock)
    world.run(expander.run())
    await until(lambda: "expand" in world.made["good"].calls, 5)
    assert world.made["hung"].calls.count("expand") == 1


async def test_a_hung_driver_is_measured_once_a_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every scrape of the node's stats takes the five seconds again."""
    monkeypatch.setattr("agent.volumes.work.csi_stats._TIMEOUT", 0.05)
    stats = CsiStats(world.volumes, world.drivers, lambda path: FsUsage(at=1), world.clock)
    for _ in range(5):
        assert list(await stats.by_pod()) == ["p2"]
    assert world.made["hung"].calls.count("usage") == 2
    await world.clock.advance(61)
    world.made["hung"].hangs = False
    assert sorted(await stats.by_pod()) == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"node_id": ""}, id="no node_id"),
        pytest.param({"node_id": "x" * (1 << 20)}, id="a mebibyte as node_id"),
        pytest.param({"node_id": "a\nb"}, id="a line feed in node_id"),
        pytest.param({"topology": {"a b": "c"}}, id="a name that is no label's"),
        pytest.param({"topology": {"a": "x" * 64}}, id="a value that is too long"),
        pytest.param({"topology": {f"a{number}": "" for number in range(100)}}, id="many segments"),
        pytest.param({"max_volumes": 1 << 40}, id="more volumes than an int32 counts"),
    ],
)
def test_facts_that_the_node_cannot_have(change: dict[str, Any]) -> None:
    facts = DriverFacts("drv", "/p/drv.sock", "node-7", topology={"topology.acme.com/zone": "z1"}, max_volumes=16)
    check_facts(facts)
    with pytest.raises(Permanent) as found:
        check_facts(replace(facts, **change))
    assert len(str(found.value)) < 300 and str(found.value).isprintable()
