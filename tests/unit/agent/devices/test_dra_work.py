"""Claims, prepared by drivers that fail and kept across restarts of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.devices.model.dra import ClaimRef
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.plugins.model import PluginInfo
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock

INFO = PluginInfo("DRAPlugin", "drv", "/p/drv.sock", ("v1.DRAPlugin",))


class World:
    """The one driver and the API; the files outlive the agent."""

    endpoint = INFO.endpoint

    def __init__(self) -> None:
        self.files, self.clock = MemoryFiles(), FakeClock()
        self.calls: list[str] = []
        self.error = ""
        self.wiped: list[str] = []
        self.known: set[str] | None = set()
        self.drivers = 0
        self.of_claim: dict[str, str] = {}  # "drv" for all others

    async def start(self, *, with_driver: bool = True) -> None:
        self.manager = DraManager(
            DraManagerDeps(
                self.files, self, lambda name, endpoint, service: self, self.clock, lambda: self.known, self.registered
            )
        )
        await self.manager.load()
        if with_driver:
            await self.manager.drivers.register(INFO)

    def registered(self) -> None:
        self.drivers += 1

    async def claim(self, namespace: str, name: str) -> Json | None:
        reserved = [{"uid": "a"}, {"uid": "b"}]
        results = [{"driver": self.of_claim.get(name, "drv")}]
        status = {"reservedFor": reserved, "allocation": {"devices": {"results": results}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        self.wiped.append(driver)

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        self.calls.append("prepare")
        if self.error:
            raise PluginError(self.error)
        device = {"request_names": ["r"], "pool_name": "p", "device_name": "d", "share_id": ""}
        return {one.uid: {"devices": [{**device, "cdi_device_ids": [f"v/c={one.uid}"]}]} for one in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        self.calls.append("unprepare")
        return {one.uid: {"error": self.error} for one in claims}

    def is_connected(self) -> bool:
        return True

    def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        raise AssertionError("it offers no such service")

    async def close(self) -> None:
        return None


BOX = container(resources={"claims": [{"name": "acc"}]})


def user(uid: str) -> Pod:
    return pod(BOX, meta={"uid": uid}, resourceClaims=[{"name": "acc", "resourceClaimName": "c1"}])


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_prepared_once_for_two_pods_and_unprepared_after_both(world: World) -> None:
    await asyncio.gather(world.manager.prepare(user("a")), world.manager.prepare(user("b")))
    assert world.calls == ["prepare"] and world.manager.grant(user("a"), BOX).cdi_devices == ("v/c=uid-c1",)
    await world.manager.release("a")
    assert world.calls == ["prepare"]
    await world.manager.release("b")
    assert world.calls == ["prepare", "unprepare"] and not list(world.manager.states)


async def test_a_restarted_agent_does_not_prepare_again(world: World) -> None:
    await world.manager.prepare(user("a"))
    await world.start(with_driver=False)
    await world.manager.prepare(user("a"))
    assert world.manager.grant(user("a"), BOX).cdi_devices and world.calls == ["prepare"]
    with pytest.raises(Temporary, match="not registered"):
        await world.manager.release("a")


async def test_a_pod_whose_driver_never_came_can_go(world: World) -> None:
    """As upstream: a driver that only the control plane knows has nothing to undo on a node."""
    await world.start(with_driver=False)
    with pytest.raises(Temporary, match="not registered"):
        await world.manager.prepare(user("a"))
    await world.manager.release("a")
    assert world.calls == [] and not list(world.manager.states)


async def test_nothing_is_prepared_while_one_of_the_drivers_is_missing(world: World) -> None:
    world.of_claim = {"c2": "other"}
    both = [{"name": "acc", "resourceClaimName": "c1"}, {"name": "more", "resourceClaimName": "c2"}]
    box = container(resources={"claims": [{"name": "acc"}, {"name": "more"}]})
    with pytest.raises(Temporary, match="other is not registered"):
        await world.manager.prepare(pod(box, meta={"uid": "a"}, resourceClaims=both))
    assert world.calls == [] and not list(world.manager.states)


async def test_a_failed_preparation_is_undone_with_the_pod(world: World) -> None:
    world.error = "on fire"
    with pytest.raises(NodewrightError, match="on fire"):
        await world.manager.prepare(user("a"))
    assert world.manager.grant(user("a"), BOX).cdi_devices == ()
    await world.start()
    world.error = ""
    await world.manager.release("a")
    assert world.calls == ["prepare", "unprepare"]


async def test_claims_of_pods_that_disappeared_unnoticed_are_unprepared(world: World) -> None:
    await world.manager.prepare(user("a"))
    run = asyncio.create_task(world.manager.run())
    world.known = None
    await world.clock.advance(61)
    assert world.calls == ["prepare"]
    world.known = set()
    await world.clock.advance(61)
    assert world.calls == ["prepare", "unprepare"]
    run.cancel()


async def test_pods_without_claims_cause_no_calls(world: World) -> None:
    await world.manager.prepare(pod(container()))
    await world.manager.release("x")
    assert world.calls == []
