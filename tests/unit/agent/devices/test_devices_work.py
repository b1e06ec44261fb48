"""Device plugins that come and go, and pods that have their devices, across restarts of the agent."""

from __future__ import annotations

import asyncio

import pytest

from agent.common.model.pods import Pod
from agent.devices.model.devices import NO_DEVICES, PluginOptions
from agent.devices.work.devices import DeviceHooks, DeviceManager
from agent.devices.work.plugin_connections import MOST
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json
from tests.builders.metrics import metrics, series
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle
from tests.fakes.devices import FakeEndpoint

GPU = "acme.com/gpu"


def anywhere(uid: str, container: str) -> None:
    """No NUMA node was chosen."""


class World:
    def __init__(self) -> None:
        self.clock, self.files, self.metrics = FakeClock(), MemoryFiles(), metrics()
        self.active: set[str] | None = set()
        self.plugins: list[FakeEndpoint] = []
        self.health_changes: list[str] = []
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

        self.manager = DeviceManager(
            self.files,
            dial,
            self.clock,
            DeviceHooks(
                lambda: self.active,
                changed,
                self.health_changes.append,
                anywhere,
                self.metrics.device_plugin_registered,
                self.metrics.devices_allocated,
            ),
        )
        await self.manager.load()

    async def plug(self, *ids: str, socket: str = "/d/gpu.sock") -> FakeEndpoint:
        await self.manager.connect("v1beta1", GPU, socket)
        self.plugins[-1].list_devices(*ids)
        await settle()
        return self.plugins[-1]

    async def admit(self, who: Pod, *, running: bool = False) -> None:
        if self.active is not None:
            self.active.add(who.uid)
        await self.manager.admit(who, running=running)

    async def ids(self, who: Pod) -> str:
        grant = await self.manager.grant(who, who.spec["containers"][0])
        return grant.envs.get("DEVICES", "")


def asks(uid: str, count: int = 1) -> Pod:
    limits: Json = {"limits": {GPU: str(count)}}
    return pod(container(resources=limits), meta={"uid": uid})


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_pods_get_free_devices_and_return_them(world: World) -> None:
    await world.plug("1", "2")
    await world.admit(asks("a"))
    await world.admit(asks("b"))
    assert {await world.ids(asks("a")), await world.ids(asks("b"))} == {"1", "2"}
    with pytest.raises(Permanent, match="Requested: 1, Available: 0"):
        await world.admit(asks("c"))
    assert world.active is not None
    world.active.discard("a")
    await world.admit(asks("c"))
    assert await world.ids(asks("c")) == "1"


async def test_registrations_and_allocations_are_counted_by_resource(world: World) -> None:
    await world.plug("1", "2")
    await world.plug("1", "2", socket="/d/other.sock")
    with pytest.raises(Invalid):
        await world.manager.connect("v1beta1", "cpu", "/d/gpu.sock")
    await world.admit(asks("a"))
    await world.admit(asks("b"))
    with pytest.raises(Permanent):
        await world.admit(asks("c"))
    assert series(world.metrics, "kubelet_device_plugin_registration_total") == {(GPU,): 2}
    assert series(world.metrics, "kubelet_device_plugin_alloc_duration_seconds_count") == {(GPU,): 2}


async def test_a_restarted_agent_knows_the_allocations(world: World) -> None:
    await world.plug("1", "2")
    await world.admit(asks("a"))
    had = await world.ids(asks("a"))
    world.active = None  # its pods are not all known yet
    await world.start()
    assert world.manager.extras().capacity == {GPU: 0}
    await world.admit(asks("a"), running=True)
    assert await world.ids(asks("a")) == had
    with pytest.raises(Permanent, match="no healthy devices present"):
        await world.admit(asks("b"))
    await world.plug("1", "2")
    await world.admit(asks("b"))
    assert await world.ids(asks("b")) != had


async def test_a_plugin_stops_comes_back_and_is_removed_at_last(world: World) -> None:
    plugin = await world.plug("1")
    assert world.manager.extras().allocatable == {GPU: 1}
    plugin.stop()
    await settle()
    assert world.manager.extras().allocatable == {GPU: 0} and world.manager.extras().capacity == {GPU: 1}
    plugin = await world.plug("1")
    assert world.manager.extras().allocatable == {GPU: 1}
    run = asyncio.create_task(world.manager.run())
    await settle()
    plugin.stop()
    await world.clock.advance(299)
    assert world.manager.extras().capacity == {GPU: 1}
    await world.clock.advance(1)
    assert world.manager.extras().capacity == {} and world.manager.extras().removed == (GPU,)
    run.cancel()


@pytest.mark.parametrize("first", ["new", "old"])
async def test_of_two_plugins_of_a_resource_the_one_that_is_left_goes_on(world: World, first: str) -> None:
    """An update of a plugin's DaemonSet starts the new one before it ends the old one, or gives it up again."""
    old = await world.plug("1", "2")
    world.wants = PluginOptions(pre_start=True)
    new = await world.plug("1", "2", socket="/d/new.sock")
    await world.admit(asks("a"))
    await world.ids(asks("a"))
    assert [name for name, _ in new.calls] == ["allocate", "pre_start"] and not old.calls
    gone, left = (new, old) if first == "new" else (old, new)
    gone.stop()
    await settle()
    assert world.manager.extras().allocatable == {GPU: 2} and not world.health_changes
    gone.calls.clear()
    await world.admit(asks("b"))
    await world.ids(asks("b"))
    asked = [name for name, _ in left.calls][-2:]
    assert asked == (["allocate", "pre_start"] if first == "old" else ["allocate"])  # by its own options
    assert not gone.calls
    left.stop()
    await settle()
    assert world.manager.extras().allocatable == {GPU: 0}


async def test_a_plugin_that_registers_under_ever_new_names_has_few_connections(world: World) -> None:
    plugins = [await world.plug("1", socket=f"/d/{number}.sock") for number in range(MOST + 3)]
    assert [one.is_closed for one in plugins] == [True] * 3 + [False] * MOST


async def test_a_plugin_that_does_not_say_its_options_is_not_used(world: World) -> None:
    world.has_no_options = "GetDevicePluginOptions failed"
    with pytest.raises(Permanent, match="failed to get device plugin options: GetDevicePluginOptions failed"):
        await world.manager.connect("v1beta1", GPU, "/d/gpu.sock")
    assert world.manager.extras().capacity == {} and world.changes == 0


async def test_a_plugin_that_lists_nothing_offers_nothing_and_is_removed_at_last(world: World) -> None:
    await world.clock.advance(1000)
    run = asyncio.create_task(world.manager.run())
    await world.manager.connect("v1beta1", GPU, "/d/gpu.sock")
    await world.clock.advance(400)  # it takes its time
    assert world.manager.extras().capacity == {GPU: 0}
    world.plugins[-1].stop()
    await settle()
    assert world.changes == 1, "the node says that there are none"
    assert world.manager.extras().capacity == world.manager.extras().allocatable == {GPU: 0}
    await world.clock.advance(300)
    assert world.manager.extras().capacity == {} and world.manager.extras().removed == (GPU,)
    run.cancel()


async def test_a_change_of_health_reaches_the_pods_concerned(world: World) -> None:
    plugin = await world.plug("1", "2")
    await world.admit(asks("a", 1))
    world.health_changes.clear()
    plugin.list_devices("2", sick=["1"])
    await settle()
    assert world.health_changes == ["a"]
    assert world.manager.health("a")["main"][0]["resources"] == [{"resourceID": "1", "health": "Unhealthy"}]


async def test_the_plugin_is_asked_what_it_prefers_and_before_a_start(world: World) -> None:
    world.wants = PluginOptions(pre_start=True, preferred_allocation=True)
    plugin = await world.plug("1", "2", "3")
    plugin.prefers = ["3"]
    await world.admit(asks("a"))
    assert await world.ids(asks("a")) == "3"
    assert plugin.calls == [("preferred", ["1", "2", "3"]), ("allocate", ["3"]), ("pre_start", ["3"])]


async def test_devices_that_a_plugin_refuses_stay_free(world: World) -> None:
    plugin = await world.plug("1")
    plugin.refuses = "the device is on fire"
    with pytest.raises(Permanent, match="Allocate failed due to the device is on fire, which is unexpected"):
        await world.admit(asks("a"))
    plugin.refuses = ""
    await world.admit(asks("b"))
    assert await world.ids(asks("b")) == "1"


async def test_a_pod_without_devices_causes_no_calls(world: World) -> None:
    await world.plug("1")
    await world.admit(pod(container()))
    assert await world.manager.grant(pod(container()), container()) == NO_DEVICES
    assert world.plugins[-1].calls == []


async def test_a_foreign_plugin_is_refused_and_a_broken_checkpoint_set_aside(world: World) -> None:
    with pytest.raises(Invalid):
        await world.manager.connect("v2", GPU, "/s")
    world.files.kept["kubelet_internal_checkpoint"] = "{"
    await world.start()
    assert "kubelet_internal_checkpoint.unreadable" in world.files.kept and not world.manager.allocations
