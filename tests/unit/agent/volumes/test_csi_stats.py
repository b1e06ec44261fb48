"""How full thousands of CSI volumes are: drivers are asked about a few at a time, and answer in a few bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.stats.model import FsUsage
from agent.volumes.edge.csi_driver import CsiDriver
from agent.volumes.model.csi import STATS, CsiVolume, DriverFacts
from agent.volumes.work.csi_stats import CsiStats
from agent.volumes.work.csi_volumes import MountedCsiVolume
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.server import serve
from tests.builders.metrics import metrics, series
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock


class Driver:
    """Counts how many volumes it is asked about at a time; those of `hangs` it never answers for."""

    def __init__(self) -> None:
        self.hangs: Collection[str] = ()
        self.asked: list[str] = []
        self.at_once = self.most = 0

    async def usage(self, handle: str, path: str) -> list[Json]:
        self.asked.append(handle)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0)
            if handle in self.hangs:
                await asyncio.Event().wait()
        finally:
            self.at_once -= 1
        return [{"unit": 1, "total": 10, "used": 1, "available": 9}]


class World:
    """Stands for the drivers and the volumes, too."""

    def __init__(self) -> None:
        self.driver, self.clock = Driver(), FakeClock()
        self.facts = {"drv": DriverFacts("drv", "/s", "n", capabilities=frozenset({STATS}))}
        self.mounted: list[MountedCsiVolume] = []
        self.metrics = metrics()
        self.stats = CsiStats(self, self, self._statfs, self.clock, self.metrics.volume_measured)  # type: ignore[arg-type]

    def get(self, name: str) -> tuple[Driver, DriverFacts]:
        return self.driver, self.facts[name]

    def mounted_volumes(self) -> list[MountedCsiVolume]:
        return self.mounted

    def add(self, namespace: str, count: int) -> list[str]:
        """Their handles. Each volume has a pod of its own, whose UID is the handle."""
        handles = [f"{namespace}-{number}" for number in range(count)]
        for one in handles:
            volume = CsiVolume("v", f"pv-{one}", "drv", one)
            self.mounted.append(MountedCsiVolume(_pod(namespace, one), volume, f"/t/{one}", republish=False))
        return handles

    def _statfs(self, path: str) -> FsUsage:
        return FsUsage(at=1)


def _pod(namespace: str, uid: str) -> Pod:
    return pod(container(), meta={"uid": uid, "namespace": namespace})


@pytest.fixture
def world() -> World:
    return World()


async def test_a_driver_is_asked_about_a_few_volumes_at_a_time(world: World) -> None:
    """It was asked about all of them in one turn of the event loop, which took 7 s for 5,000."""
    handles = world.add("evil", 500)
    assert sorted(await world.stats.by_pod()) == sorted(handles)
    assert (world.driver.most, len(world.driver.asked)) == (16, 500)
    await world.stats.by_pod()
    assert len(world.driver.asked) == 500, "and once a minute"
    assert series(world.metrics, "kubelet_volume_metric_collection_duration_seconds_count") == {("drv",): 500}


async def test_who_asks_together_is_told_the_same(world: World) -> None:
    world.add("evil", 50)
    await asyncio.gather(*(world.stats.by_pod() for _ in range(20)))
    assert len(world.driver.asked) == 50


async def test_volumes_that_hang_keep_nobody_elses_from_being_measured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volumes.work.csi_stats._TIMEOUT", 0.2)
    world.driver.hangs = world.add("evil", 500)
    others = world.add("other", 10)
    assert sorted(await world.stats.by_pod()) == sorted(others)
    asked = len(world.driver.asked)
    assert sorted(await world.stats.by_pod()) == sorted(others)
    assert len(world.driver.asked) == asked, "a driver that hangs is not asked again at once"
    world.driver.hangs = ()
    await world.clock.advance(61)
    assert len(await world.stats.by_pod()) == 510


async def test_an_answer_of_megabytes_is_refused(tmp_path: Path) -> None:
    """400,000 entries were taken: 160 MB of memory for each volume, and 0.1 s of the event loop."""
    entries = 1

    async def stats(request: Json) -> Json:
        return {"usage": [{"unit": 1, "total": 10}] * entries}

    server = await serve(f"{tmp_path}/s", [CSI.handler("Node", {"NodeGetVolumeStats": stats})])
    driver = CsiDriver("drv", f"{tmp_path}/s")
    try:
        assert len(await driver.usage("h", "/t")) == 1
        entries = 100_000
        with pytest.raises(PluginError) as found:
            await driver.usage("h", "/t")
        assert found.value.code == "RESOURCE_EXHAUSTED"
    finally:
        await driver.close()
        await server.stop(None)
