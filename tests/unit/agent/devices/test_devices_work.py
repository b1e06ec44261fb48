"""Device plugins that come and go, and pods that hold what they offer, over restarts of the agent."""

from __future__ import annotations

import asyncio

import pytest

from agent.common.model.pods import Json, Pod
from agent.devices.model.devices import PluginOptions
from agent.devices.work.devices import DeviceHooks, DeviceManager
from nodelib.errors import Invalid, Permanent
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle
from tests.fakes.devices import FakeEndpoint

GPU = "acme.com/gpu"


def anywhere(uid: str, container: str) -> None:
    """No NUMA node was chosen."""


class World:
    def __init__(self) -> None:
        self.clock, self.files = FakeClock(), MemoryFiles()
        self.holding: set[str] | None = set()
        self.plugins: list[FakeEndpoint] = []
        self.poked: list[str] = []
        self.changes = 0
        self.wants = PluginOptions()
        self.has_no_options = ""

    async def start(self) -> None:
        def changed() -> None:
            self.changes += 1

        def dial(resource: str, socket: str) -> FakeEndpoint:
            self.plugins.append(FakeEndpoint(resource, socket))
            self.plugins[-1].wants, self.plugins[-1].has_no_options = self.wants, self.has_no_options
            return self.plugins[-1]

        self.desk = DeviceManager(
            self.files, dial, self.clock, DeviceHooks(lambda: self.holding, changed, self.poked.append, anywhere)
        )
        await self.desk.load()

    async def plug(self, *ids: str) -> FakeEndpoint:
        await self.desk.offer("v1beta1", GPU, "/d/gpu.sock")
        self.plugins[-1].tell(*ids)
        await settle()
        return self.plugins[-1]

    async def admit(self, who: Pod, *, running: bool = False) -> None:
        if self.holding is not None:
            self.holding.add(who.uid)
        await self.desk.admit(who, running=running)

    async def ids(self, who: Pod) -> str:
        grant = await self.desk.grant(who, who.spec["containers"][0])
        return grant.envs.get("DEVICES", "")


def asks(uid: str, count: int = 1) -> Pod:
    limits: Json = {"limits": {GPU: str(count)}}
    return pod(container(resources=limits), meta={"uid": uid})


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_pods_share_what_there_is_and_give_it_back(world: World) -> None:
    await world.plug("1", "2")
    await world.admit(asks("a"))
    await world.admit(asks("b"))
    assert {await world.ids(asks("a")), await world.ids(asks("b"))} == {"1", "2"}
    with pytest.raises(Permanent, match="Requested: 1, Available: 0"):
        await world.admit(asks("c"))
    assert world.holding is not None
    world.holding.discard("a")
    await world.admit(asks("c"))
    assert await world.ids(asks("c")) == "1"


async def test_a_restarted_agent_knows_who_has_what(world: World) -> None:
    await world.plug("1", "2")
    await world.admit(asks("a"))
    had = await world.ids(asks("a"))
    world.holding = None  # its pods are not all known yet
    await world.start()
    assert world.desk.extras().capacity == {GPU: 0}
    await world.admit(asks("a"), running=True)
    assert await world.ids(asks("a")) == had
    with pytest.raises(Permanent, match="no healthy devices present"):
        await world.admit(asks("b"))
    await world.plug("1", "2")
    await world.admit(asks("b"))
    assert await world.ids(asks("b")) != had


async def test_a_plugin_leaves_comes_back_and_is_forgotten_at_last(world: World) -> None:
    plugin = await world.plug("1")
    assert world.desk.extras().allocatable == {GPU: 1}
    plugin.leave()
    await settle()
    assert world.desk.extras().allocatable == {GPU: 0} and world.desk.extras().capacity == {GPU: 1}
    plugin = await world.plug("1")
    assert world.desk.extras().allocatable == {GPU: 1}
    run = asyncio.create_task(world.desk.run())
    plugin.leave()
    for _ in range(32):
        await world.clock.advance(10)
    assert world.desk.extras().capacity == {} and world.desk.extras().removed == (GPU,)
    run.cancel()


async def test_a_plugin_that_does_not_say_its_options_is_not_used(world: World) -> None:
    world.has_no_options = "GetDevicePluginOptions failed"
    with pytest.raises(Permanent, match="failed to get device plugin options: GetDevicePluginOptions failed"):
        await world.desk.offer("v1beta1", GPU, "/d/gpu.sock")
    assert world.desk.extras().capacity == {} and world.changes == 0


async def test_a_plugin_that_lists_nothing_offers_nothing_and_is_forgotten_at_last(world: World) -> None:
    await world.clock.advance(1000)
    run = asyncio.create_task(world.desk.run())
    await world.desk.offer("v1beta1", GPU, "/d/gpu.sock")
    await world.clock.advance(400)  # it takes its time
    assert world.desk.extras().capacity == {GPU: 0}
    world.plugins[-1].leave()
    await settle()
    assert world.changes == 1, "the node says that there are none"
    assert world.desk.extras().capacity == world.desk.extras().allocatable == {GPU: 0}
    for _ in range(32):
        await world.clock.advance(10)
    assert world.desk.extras().capacity == {} and world.desk.extras().removed == (GPU,)
    run.cancel()


async def test_health_is_told_to_the_pods_concerned(world: World) -> None:
    plugin = await world.plug("1", "2")
    await world.admit(asks("a", 1))
    world.poked.clear()
    plugin.tell("2", sick=["1"])
    await settle()
    assert world.poked == ["a"]
    assert world.desk.health("a")["main"][0]["resources"] == [{"resourceID": "1", "health": "Unhealthy"}]


async def test_the_plugin_prefers_and_is_told_before_a_start(world: World) -> None:
    world.wants = PluginOptions(pre_start=True, preferred_allocation=True)
    plugin = await world.plug("1", "2", "3")
    plugin.prefers = ["3"]
    await world.admit(asks("a"))
    assert await world.ids(asks("a")) == "3"
    assert plugin.calls == [("preferred", ["1", "2", "3"]), ("allocate", ["3"]), ("pre_start", ["3"])]


async def test_a_plugin_that_refuses_keeps_nothing(world: World) -> None:
    plugin = await world.plug("1")
    plugin.refuses = "the device is on fire"
    with pytest.raises(Permanent, match="Allocate failed due to the device is on fire, which is unexpected"):
        await world.admit(asks("a"))
    plugin.refuses = ""
    await world.admit(asks("b"))


async def test_a_pod_that_asks_for_no_device_costs_nothing(world: World) -> None:
    await world.plug("1")
    await world.admit(pod(container()))
    assert await world.desk.grant(pod(container()), container()) is not None
    assert world.plugins[-1].calls == []


async def test_bad_plugins_and_bad_files(world: World) -> None:
    with pytest.raises(Invalid):
        await world.desk.offer("v2", GPU, "/s")
    world.files.kept["kubelet_internal_checkpoint"] = "{"
    await world.start()
    assert "kubelet_internal_checkpoint.unreadable" in world.files.kept and not world.desk.held
