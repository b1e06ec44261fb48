"""A device plugin that lists hundreds of thousands of devices, again and again: it holds up nothing but itself."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.devices.edge.device_plugin import DevicePluginEndpoint
from agent.devices.plan import device_checkpoint as checkpoint
from agent.devices.plan import devices as plan
from agent.plugins.edge.apis import DEVICE_PLUGIN
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve
from nodelib.plugin_apis.wire import Call
from tests.unit.agent.devices.test_devices_work import GPU, World
from tests.waiting import until

MANY = [{"ID": str(number), "health": "Healthy"} for number in range(100_000)]


@pytest.fixture
async def beside(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """What was worked on, and whether never by the event loop's thread."""
    found: dict[str, bool] = {}

    def watched(owner: Any, name: str) -> None:
        before = getattr(owner, name)

        def work(*args: Any) -> Any:
            found[name] = found.get(name, True) and threading.current_thread() is not threading.main_thread()
            return before(*args)

        monkeypatch.setattr(owner, name, work)

    watched(Call, "decode")
    watched(plan, "listed")
    watched(checkpoint, "encode")
    return found


async def test_an_answer_of_megabytes_is_read_in_a_thread(tmp_path: Path, beside: dict[str, bool]) -> None:
    """One of 16 MiB, the most that is taken, held the event loop for 3.5 s."""

    async def listed(request: Json) -> AsyncIterator[Json]:
        yield {"devices": MANY}

    async def options(request: Json) -> Json:
        return {}

    path = str(tmp_path / "gpu.sock")
    methods: dict[str, Any] = {"ListAndWatch": listed, "GetDevicePluginOptions": options}
    server = await serve(path, [DEVICE_PLUGIN.handler("DevicePlugin", methods)])
    endpoint = DevicePluginEndpoint(GPU, path)
    try:
        assert [len(found) async for found in endpoint.watch()] == [len(MANY)]
        assert beside.pop("decode")
        await endpoint.options()
        assert not beside["decode"], "a small one needs no thread"
    finally:
        await endpoint.close()
        await server.stop(None)


async def test_many_devices_are_compared_and_recorded_in_threads(beside: dict[str, bool]) -> None:
    """900,000 took 5 s more, and with them each status of the node a quarter of a second."""
    world = World()
    await world.start()
    plugin = await world.plug()
    beside.clear()
    plugin.list_devices(*(one["ID"] for one in MANY))
    await until(lambda: world.files.kept.get(checkpoint.CHECKPOINT, "").count(",") > 1000)
    assert beside == {"listed": True, "encode": True}
    assert world.manager.extras().allocatable == {GPU: plan.MOST_DEVICES}
    began = time.process_time()
    for _ in range(1000):
        world.manager.extras()
    assert time.process_time() - began < 0.5


async def test_between_two_lists_of_very_many_there_is_a_pause() -> None:
    world = World()
    await world.start()
    plugin = await world.plug()
    for count in (2000, 3000):
        plugin.list_devices(*(one["ID"] for one in MANY[:count]))
    await until(lambda: world.clock.sleeping)
    assert world.manager.extras().capacity == {GPU: 2000}
    await until(lambda: world.manager.extras().capacity == {GPU: 3000}, clock=world.clock, advance=0.1)
