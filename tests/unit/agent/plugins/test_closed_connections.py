"""A plugin that registers again, or leaves, while it is called: its connection is closed under the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.common.model.errors import PluginUnavailable
from agent.devices.edge.dra_driver import DraDriver
from agent.stats.model import FsUsage
from agent.volumes.edge.csi_driver import CsiDriver
from agent.volumes.model.csi import STATS, CsiVolume, DriverFacts
from agent.volumes.work.csi_stats import CsiStats
from agent.volumes.work.csi_volumes import MountedCsiVolume
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.server import serve
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.waiting import until


class Hanging:
    """A CSI driver that never says how full a volume is, and how often it was asked."""

    def __init__(self, driver: CsiDriver) -> None:
        self.driver, self.asked = driver, 0
        self.facts = {"drv": DriverFacts("drv", driver.endpoint, "n", capabilities=frozenset({STATS}))}

    def get(self, name: str) -> tuple[CsiDriver, DriverFacts]:
        return self.driver, self.facts[name]

    def mounted_volumes(self) -> list[MountedCsiVolume]:
        return [MountedCsiVolume(pod(container()), CsiVolume("v", "pv", "drv", "h"), "/t", republish=False)]

    async def stats(self, request: Json) -> Json:
        self.asked += 1
        return await asyncio.Event().wait()  # type: ignore[return-value]


@pytest.fixture
async def hanging(tmp_path: Path) -> AsyncIterator[Hanging]:
    made = Hanging(CsiDriver("drv", f"{tmp_path}/s"))
    server = await serve(f"{tmp_path}/s", [CSI.handler("Node", {"NodeGetVolumeStats": made.stats})])
    try:
        yield made
    finally:
        await made.driver.close()
        await server.stop(None)


async def test_a_call_fails_when_its_connection_is_closed(hanging: Hanging) -> None:
    """It raised CancelledError, which cancels the task that has called: nobody expects that of a plugin."""
    call = asyncio.create_task(hanging.driver.usage("h", "/t"))
    await until(lambda: hanging.asked)
    await hanging.driver.close()
    with pytest.raises(PluginUnavailable, match="connection was closed") as found:
        await call
    assert found.value.code == "CANCELLED"


async def test_so_does_one_that_comes_later(hanging: Hanging, tmp_path: Path) -> None:
    await hanging.driver.close()
    with pytest.raises(PluginUnavailable, match="connection was closed"):
        await hanging.driver.usage("h", "/t")
    driver = DraDriver("drv", f"{tmp_path}/s", "v1.DRAPlugin")
    await driver.close()
    with pytest.raises(PluginUnavailable, match="connection was closed"):
        await anext(driver.watch_health("v1.DRAResourceHealth"))  # type: ignore[arg-type]


async def test_who_is_cancelled_himself_is_cancelled(hanging: Hanging) -> None:
    call = asyncio.create_task(hanging.driver.usage("h", "/t"))
    await until(lambda: hanging.asked)
    call.cancel()
    await hanging.driver.close()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_volumes_are_measured_on_when_a_driver_has_left_meanwhile(hanging: Hanging) -> None:
    """The task that measures them ended for good, and so did eviction, which waits for what it finds."""
    clock = FakeClock()
    stats = CsiStats(hanging, hanging, lambda path: FsUsage(at=1), clock)  # type: ignore[arg-type]
    run, asks = asyncio.create_task(stats.run()), asyncio.create_task(stats.by_pod())
    try:
        await until(lambda: hanging.asked)
        await hanging.driver.close()
        assert await asks == {}
        await settle()
        assert not run.done()
    finally:
        await cancel_and_wait(run)
