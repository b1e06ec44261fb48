"""Two instances of one DRA driver on a node, as while it is updated: the newest is asked, then the one that is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from agent.devices.model.dra import ClaimRef
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.plugins.model import PluginInfo
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle
from tests.waiting import until

HEALTH = "v1.DRAResourceHealth"


class Instance:
    """What one of them is asked."""

    def __init__(self, world: World, endpoint: str) -> None:
        self._world, self.endpoint, self.closed = world, endpoint, False

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        self._world.calls.append(f"prepare {self.endpoint}")
        return {one.uid: {"devices": []} for one in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        self._world.calls.append(f"unprepare {self.endpoint}")
        return {one.uid: {} for one in claims}

    def is_connected(self) -> bool:
        return self.endpoint not in self._world.away

    async def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        self._world.watched.append(self.endpoint)
        await self._world.clock.sleep(1e9)
        yield []

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls: list[str] = []
        self.watched: list[str] = []
        self.wiped: list[str] = []
        self.away: set[str] = set()  # endpoints that nobody reaches
        self.refuses = 0  # how often the API server deletes nothing
        self.dialled: list[Instance] = []
        deps = DraManagerDeps(MemoryFiles(), self, self._dial, self.clock, lambda: None, lambda: None)
        self.manager = DraManager(deps)

    def _dial(self, name: str, endpoint: str, service: str) -> Instance:
        self.dialled.append(Instance(self, endpoint))
        return self.dialled[-1]

    async def claim(self, namespace: str, name: str) -> Json | None:
        status = {"reservedFor": [{"uid": "a"}], "allocation": {"devices": {"results": [{"driver": "drv"}]}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        self.wiped.append(driver)
        if self.refuses:
            self.refuses -= 1
            raise Temporary("not now")

    async def register(self, *endpoints: str) -> None:
        for one in endpoints:
            await self.manager.drivers.register(info(one))

    async def one_pod(self) -> list[str]:
        """Whom a pod's claim asks."""
        self.calls.clear()
        made = pod(container(), meta={"uid": "a"}, resourceClaims=[{"name": "acc", "resourceClaimName": "c1"}])
        await self.manager.prepare(made)
        await self.manager.release("a")
        return self.calls

    def open(self) -> list[str]:
        return [one.endpoint for one in self.dialled if not one.closed]


@asynccontextmanager
async def running(made: World | None = None) -> AsyncIterator[World]:
    """The drivers are followed, and what the start of the agent deletes is done."""
    world = made or World()
    run = asyncio.create_task(world.manager.drivers.run())
    await settle()
    if made is None:
        assert world.wiped == [""], "of drivers that were there before the agent"
        world.wiped.clear()
    try:
        yield world
    finally:
        await cancel_and_wait(run)


def info(endpoint: str) -> PluginInfo:
    return PluginInfo("DRAPlugin", "drv", endpoint, ("v1.DRAPlugin", HEALTH))


async def test_the_newest_is_asked() -> None:
    world = World()
    await world.register("old", "new")
    await until(lambda: world.watched[-1:] == ["new"])
    assert await world.one_pod() == ["prepare new", "unprepare new"]
    await world.manager.drivers.deregister(info("old"))
    assert await world.one_pod() == ["prepare new", "unprepare new"]
    assert world.open() == ["new"] and not world.wiped and world.watched.count("new") == 1


async def test_the_old_one_is_asked_again_when_the_new_one_has_left() -> None:
    """An update that failed. It also tells the health of its devices, and its ResourceSlices stay."""
    async with running() as world:
        await world.register("old", "new")
        await until(lambda: world.watched[-1:] == ["new"])
        await world.manager.drivers.deregister(info("new"))
        assert await world.one_pod() == ["prepare old", "unprepare old"]
        await until(lambda: world.watched[-1:] == ["old"])
        await world.clock.advance(60)
        assert world.open() == ["old"] and not world.wiped


async def test_after_the_last_one_the_driver_is_gone() -> None:
    world = World()
    await world.register("old", "new")
    await world.manager.drivers.deregister(info("new"))
    await world.manager.drivers.deregister(info("old"))
    with pytest.raises(Temporary, match="not registered"):
        await world.one_pod()
    await world.clock.advance(31)
    assert world.open() == [] and world.wiped == ["drv"]


async def test_slices_of_a_driver_that_stays_away_are_deleted() -> None:
    async with running() as world:
        await world.register("one")
        await world.clock.advance(60)
        await world.manager.drivers.deregister(info("one"))
        await world.clock.advance(20)
        await world.register("one")
        await world.clock.advance(60)
        assert world.wiped == [], "it came back in time"
        await world.manager.drivers.deregister(info("one"))
        await world.clock.advance(31)
        assert world.wiped == ["drv"]


async def test_slices_of_a_driver_whose_service_stops_are_deleted_though_its_registrar_stays() -> None:
    async with running() as world:
        await world.register("one")
        await world.clock.advance(60)
        world.away.add("one")
        await world.clock.advance(15)
        world.away.clear()
        await world.clock.advance(60)
        assert world.wiped == [], "it was away for a moment"
        world.away.add("one")
        await world.clock.advance(33)
        assert world.wiped == ["drv"]
        await world.clock.advance(300)
        assert world.wiped == ["drv"], "once"


async def test_slices_of_a_driver_that_registers_and_cannot_be_reached_are_deleted() -> None:
    async with running() as world:
        world.away.add("one")
        await world.register("one")
        await world.clock.advance(31)
        assert world.wiped == ["drv"]


async def test_slices_of_all_drivers_are_deleted_at_the_start_until_the_api_server_does_it() -> None:
    world = World()
    world.refuses = 2
    async with running(world):
        await world.clock.advance(10)
        assert world.wiped == ["", "", ""]


async def test_slices_of_one_that_comes_back_at_the_last_moment_stay() -> None:
    """Connections are looked at each second, and it had published its slices anew before that look."""
    async with running() as world:
        await world.register("one")
        await world.clock.advance(60.5)
        await world.manager.drivers.deregister(info("one"))
        await world.clock.advance(29.7)
        await world.register("one")
        await world.clock.advance(60)
        assert world.wiped == []


async def test_one_that_can_be_reached_is_asked_before_a_newer_one_that_cannot() -> None:
    async with running() as world:
        world.away.add("new")
        await world.register("old", "new")
        await world.clock.advance(2)
        assert await world.one_pod() == ["prepare old", "unprepare old"]


async def test_one_that_registers_again_is_not_there_twice() -> None:
    world = World()
    await world.register("old", "new", "old")
    assert await world.one_pod() == ["prepare old", "unprepare old"]
    await world.manager.drivers.deregister(info("old"))
    assert world.open() == ["new"] and await world.one_pod() == ["prepare new", "unprepare new"]
    await world.manager.drivers.close()
    assert world.open() == []


async def test_instances_that_register_together_leave_one_that_tells_of_health() -> None:
    """Each waited for the end of the same listener and began one of its own, which nobody ended any more."""
    async with running() as world:
        await world.register("old")
        await until(lambda: world.watched == ["old"])
        await asyncio.gather(world.register("one"), world.register("two"), world.register("three"))
        await until(lambda: world.watched[-1:] == ["three"])
        assert len(_listeners()) == 1
        drivers = world.manager.drivers
        await asyncio.gather(*(drivers.deregister(info(one)) for one in ("three", "one", "two", "old")))
        await settle()
        assert not _listeners() and not world.open()


def _listeners() -> list[str]:
    return [one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("health of")]
