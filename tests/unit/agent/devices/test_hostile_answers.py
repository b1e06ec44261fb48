"""Answers of device plugins and DRA drivers that are far too long, and what many ordinary ones cost together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from agent.common.model.errors import PluginError
from agent.devices.edge.device_plugin import DevicePluginEndpoint
from agent.devices.edge.dra_driver import DraDriver
from agent.devices.model.devices import (
    AllocationKey,
    DeviceAllocation,
    DeviceGrant,
    PluginOptions,
    RegisteredPlugin,
)
from agent.devices.model.dra import ClaimRef
from agent.devices.plan import device_checkpoint, devices, dra
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.plugins.edge.apis import DEVICE_PLUGIN, DRA, POD_RESOURCES
from agent.plugins.model import PluginInfo
from nodelib.errors import Invalid, Temporary
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve
from tests.builders.pods import pod
from tests.cpu_time import least
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle
from tests.fakes.devices import FakeEndpoint
from tests.unit.agent.devices.test_devices_work import GPU, World, asks

CLAIM = ClaimRef("shop", "c1", "uid-c1")


def prepared(name: str, count: int = 1) -> Json:
    one = {"pool_name": "p", "device_name": name, "request_names": ["r"], "cdi_device_ids": [f"v/c={name}"]}
    return {"devices": [one] * count, "error": ""}


# --- one answer


async def test_an_answer_about_a_claim_is_small(tmp_path: Path) -> None:
    """Of 16 MiB, which were taken, there were gigabytes of values."""

    async def prepare(request: Json) -> Json:
        return {"claims": {CLAIM.uid: prepared("x" * 200, 10_000)}}

    path = str(tmp_path / "dra.sock")
    server = await serve(path, [DRA.handler("DRAPlugin", {"NodePrepareResources": prepare})])
    driver = DraDriver("drv", path, "v1.DRAPlugin")
    try:
        with pytest.raises(PluginError):
            await driver.prepare([CLAIM])
    finally:
        await driver.close()
        await server.stop(None)


def test_a_claim_has_as_many_devices_as_the_api_server_stores_and_some_more() -> None:
    assert len(dra.prepared_devices("drv", prepared("d", 1024))) == 1024
    with pytest.raises(Temporary, match="1025 devices"):
        dra.prepared_devices("drv", prepared("d", 1025))
    names = {**prepared("d")["devices"][0], "cdi_device_ids": ["v/c=d"] * 20_000}
    with pytest.raises(Temporary, match="20001 names"):
        dra.prepared_devices("drv", {"devices": [names], "error": ""})


def test_messages_of_two_bytes_each() -> None:
    """Sixteen MiB of them are eight million devices."""
    call = DEVICE_PLUGIN.calls["DevicePlugin.ListAndWatch"]
    assert len(call.decode(b"\x0a\x00" * 100_000)["devices"]) == 100_000
    with pytest.raises((ValueError, DecodeError), match="more than 400000 entries"):
        call.decode(b"\x0a\x00" * 500_000)
    # ... and below others
    nodes = b"\x0a\x00" * 500_000
    topology = b"\x1a" + _varint(len(nodes)) + nodes
    with pytest.raises((ValueError, DecodeError), match="more than 400000 entries"):
        call.decode(b"\x0a" + _varint(len(topology)) + topology)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


async def test_what_is_recorded_of_a_container_is_small(tmp_path: Path) -> None:
    """It is in the checkpoint, which is written whole, as long as the pod runs."""

    async def allocate(request: Json) -> Json:
        return {"container_responses": [{"envs": {"A": "x" * (2 << 20)}}]}

    path = str(tmp_path / "gpu.sock")
    server = await serve(path, [DEVICE_PLUGIN.handler("DevicePlugin", {"Allocate": allocate})])
    endpoint = DevicePluginEndpoint(GPU, path)
    try:
        with pytest.raises(PluginError, match="at most 1048576 are read"):
            await endpoint.allocate(["a"])
    finally:
        await endpoint.close()
        await server.stop(None)


async def test_a_device_that_is_preferred_twice_is_one_device() -> None:
    world = World()
    await world.start()
    world.wants = PluginOptions(preferred_allocation=True)
    plugin = await world.plug("1", "2", "3")
    plugin.prefers = ["2", "2"]
    await world.admit(asks("a", 2))
    assert await world.ids(asks("a", 2)) == "1,2"


def test_devices_of_init_containers_that_have_left_the_list() -> None:
    response: Json = {"envs": {}, "mounts": [], "devices": [], "annotations": {}, "cdi_devices": []}
    made = devices.allocation_from(frozenset({"gone"}), {}, response)
    assert made.numa == {-1: ("gone",)}


# --- many of them


async def test_a_plugin_that_sends_lists_without_end() -> None:
    """Each was worked on at once, recorded and told: all turns of the event loop."""
    world = World()
    await world.start()
    plugin = await world.plug("1")
    saved = world.files.writes
    for number in range(200):
        plugin.list_devices("1", str(number))
    await settle(3000)
    assert world.files.writes - saved <= devices.BURST + 1
    await world.clock.advance(1)
    await settle(300)
    assert world.files.writes - saved <= devices.BURST + devices.CHANGES_A_SECOND + 1


async def test_a_plugin_that_says_the_same_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list was read at once: nine tenths of the event loop for one plugin that lists 900 devices."""
    world, looked = World(), list[int]()
    await world.start()
    plugin = await world.plug("1")
    listed = devices.listed

    def counted(before: RegisteredPlugin, found: Sequence[Json]) -> Any:
        looked.append(len(found))
        return listed(before, found)

    monkeypatch.setattr(devices, "listed", counted)
    for _ in range(2000):
        plugin.list_devices("1")
    await settle(4000)
    assert len(looked) < 500
    before = len(looked)
    await world.clock.advance(1.1)
    await settle(1000)
    assert before < len(looked) < 2 * before + 10, "it goes on"


def test_lists_of_all_plugins_have_a_part_of_the_loop() -> None:
    few, many = [None] * 10, [None] * 900
    assert devices.pause_after(few, 3, 0.0)[0] == 0.0
    owed, read = 0.0, 0
    while not (pause := devices.pause_after(many, 8, owed))[0]:
        owed, read = pause[1], read + 1
    assert read < 5 and 1.0 < pause[0] < 1.5 and pause[1] == 0.0
    assert devices.pause_after(many, 2048, 0.0)[0] > 60
    assert devices.pause_after([None] * 60_000, 1, 0.0)[0] > 2.0


async def test_a_plugin_whose_list_cannot_be_read_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its devices were offered for ever."""
    world = World()
    await world.start()
    plugin = await world.plug("1")

    def broken(*args: Any) -> None:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(devices, "listed", broken)
    plugin.list_devices("1", "2")
    await settle()
    assert world.manager.extras().allocatable == {GPU: 0}


def test_the_health_of_one_pod_is_found_among_thousands() -> None:
    """All allocations of the node were put in order for each status of each pod."""
    found = {
        AllocationKey(f"u{number % 100}", f"c{number}", GPU): DeviceAllocation(frozenset({str(number)}))
        for number in range(20_000)
    }
    began = time.process_time()
    for _ in range(10):
        assert len(devices.health_status("u7", found, {})) == 200
    assert time.process_time() - began < 0.5


def test_the_checkpoint_of_what_has_not_changed_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = DeviceGrant(envs={"A": "x" * 1000})
    found = {AllocationKey("u", f"c{one}", GPU): DeviceAllocation(frozenset({str(one)}), grant) for one in range(10)}
    texts = device_checkpoint.Texts()
    first = device_checkpoint.encode(found, {GPU: RegisteredPlugin()}, texts)
    assert device_checkpoint.decode(first)[0].keys() == found.keys()
    made: list[AllocationKey] = []
    before = device_checkpoint._entry

    def counted(key: AllocationKey, one: DeviceAllocation) -> str:
        made.append(key)
        return before(key, one)

    monkeypatch.setattr(device_checkpoint, "_entry", counted)
    fresh = AllocationKey("u", "c99", GPU)
    found[fresh] = DeviceAllocation(frozenset({"99"}))
    del found[AllocationKey("u", "c3", GPU)]
    again = device_checkpoint.encode(found, {GPU: RegisteredPlugin()}, texts)
    assert made == [fresh] and again == device_checkpoint.encode(found, {GPU: RegisteredPlugin()})
    assert texts.keys() == found.keys()


class _Shared:
    """Claims of which each has a device."""

    async def claim(self, namespace: str, name: str) -> Json | None:
        result = {"driver": "drv.example", "pool": "p", "device": name, "request": "r"}
        status = {"reservedFor": [{"uid": "u1"}], "allocation": {"devices": {"results": [result]}}}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"}, "status": status}

    async def delete_slices(self, driver: str) -> None:
        return None


class _Driver:
    endpoint = "/d.sock"

    def is_connected(self) -> bool:
        return True

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        return {one.uid: prepared(one.name) for one in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        return {one.uid: {"error": ""} for one in claims}

    async def watch_health(self, service: str) -> AsyncIterator[list[Json]]:
        yield []

    async def close(self) -> None:
        return None


async def test_a_thousand_claims_with_a_device_each() -> None:
    """The checkpoint of all of them was made twice for each: 45 s of the event loop."""
    names = [f"c{number}" for number in range(1000)]
    who = pod(meta={"uid": "u1"}, resourceClaims=[{"name": one, "resourceClaimName": one} for one in names])
    files = MemoryFiles()
    deps = DraManagerDeps(files, _Shared(), lambda *what: _Driver(), FakeClock(), lambda: None, lambda: None)
    manager = DraManager(deps)
    await manager.drivers.register(PluginInfo("DRAPlugin", "drv.example", "/d.sock", ("v1.DRAPlugin",)))
    began = time.process_time()
    await manager.prepare(who)
    assert len(dra.decode(files.kept[dra.CHECKPOINT])) == 1000
    await manager.release("u1")
    assert time.process_time() - began < 12
    assert dra.decode(files.kept[dra.CHECKPOINT]) == {}


# --- who asks about them


async def test_a_long_list_of_devices_is_encoded_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    response = POD_RESOURCES.calls["PodResourcesLister.GetAllocatableResources"].response
    many = [{"resource_name": GPU, "device_ids": [str(one)]} for one in range(5000)]

    async def allocatable(request: Json) -> Json:
        return {"devices": many}

    handler: Any = POD_RESOURCES.handler("PodResourcesLister", {"GetAllocatableResources": allocatable})
    path = "/v1.PodResourcesLister/GetAllocatableResources"
    method = handler.service(type("Details", (), {"method": path, "invocation_metadata": ()}))
    loop = asyncio.get_running_loop()
    before = loop.run_in_executor

    def counted(executor: Any, work: Any, *args: Any) -> Any:
        called.append(threading.current_thread() is threading.main_thread())
        return before(executor, work, *args)

    monkeypatch.setattr(loop, "run_in_executor", counted)
    made = await method.unary_unary(response(), None)
    assert called == [True]
    assert len(response.FromString(method.response_serializer(made)).devices) == 5000


def test_a_checkpoint_of_millions_of_values() -> None:
    """Device plugins have its folder: 256 MB of empty lists were 6 GB and a minute of an agent that starts."""
    text = '{"Data":{"x":[' + "[]," * 2_100_000 + "[]]}}"

    def refused() -> None:
        with pytest.raises(Invalid, match=r"42\d{5} values"):
            device_checkpoint.decode(text)

    assert least(refused)[0] < 0.2


def test_what_is_written_can_be_read_again() -> None:
    plugin = RegisteredPlugin(devices.devices_of({"ID": str(n), "health": "Healthy"} for n in range(60_000)), True)
    text = device_checkpoint.encode({}, {f"e.x/{number}": plugin for number in range(40)})
    assert len(text) < device_checkpoint.MOST_BYTES
    assert len(device_checkpoint.decode(text)[1]) == 40


async def test_a_checkpoint_that_is_no_object_inside() -> None:
    files = MemoryFiles()
    files.kept[dra.CHECKPOINT] = '{"Data":{"Claims":[{"ref":{"namespace":"a","name":"b","uid":"c"},"devices":["x"]}]}}'
    deps = DraManagerDeps(files, _Shared(), lambda *what: _Driver(), FakeClock(), lambda: None, lambda: None)
    manager = DraManager(deps)
    await manager.load()
    assert not list(manager.states) and f"{dra.CHECKPOINT}.unreadable" in files.kept


async def test_ever_new_resources_of_a_plugin() -> None:
    """Each was in the Node, and in the agent's memory, for good."""
    world = World()
    await world.start()
    for number in range(devices.MOST_RESOURCES):
        await world.manager.connect("v1beta1", f"e.x/{number}", f"/d/{number}.sock")
    with pytest.raises(Temporary, match="256 resources"):
        await world.manager.connect("v1beta1", "e.x/more", "/d/more.sock")
    assert len(world.plugins) == len(world.manager.extras().capacity) == devices.MOST_RESOURCES
    await world.manager.connect("v1beta1", "e.x/7", "/d/new.sock")  # an update of one that is known
    run = asyncio.create_task(world.manager.run())
    for one in world.plugins:
        one.stop()
    await settle()
    await world.clock.advance(devices.STOP_GRACE + 1)
    assert len(world.manager.extras().removed) == devices.MOST_RESOURCES
    with pytest.raises(Temporary, match="256 resources"):  # those that are gone are in the Node
        await world.manager.connect("v1beta1", "e.x/more", "/d/more.sock")
    run.cancel()


async def test_registrations_of_plugins_that_do_not_say_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kept a connection for a minute."""

    async def never(self: FakeEndpoint) -> PluginOptions:
        await asyncio.Event().wait()
        return PluginOptions()

    world = World()
    await world.start()
    monkeypatch.setattr(FakeEndpoint, "options", never)
    waiting = [
        asyncio.create_task(world.manager.connect("v1beta1", GPU, f"/d/{number}.sock"))
        for number in range(devices.MOST_REGISTRATIONS + 100)
    ]
    await settle()
    refused = [one.exception() for one in waiting if one.done()]
    assert (len(refused), len(world.plugins)) == (100, devices.MOST_REGISTRATIONS)
    assert all(isinstance(one, Temporary) for one in refused)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    monkeypatch.undo()
    await world.plug("1")
    assert world.manager.extras().capacity == {GPU: 1}
