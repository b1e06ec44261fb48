"""Volumes follow their sources: no change is lost, whatever else goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from agent.common.model.pods import Pod
from agent.pods.work.memory import PodMemory
from agent.pods.work.timeline import Timeline
from agent.pods.work.volume_refreshes import VolumeRefreshes
from agent.volumes.model.volumes import MountedVolume
from nodelib.errors import NodewrightError, Permanent, Temporary
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.pod_world import FakeVolumes, World


class SlowVolumes(FakeVolumes):
    """refresh() ends when `open` is set; `failures` are raised by it, one each."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.failures: list[NodewrightError] = []

    async def refresh(self, pod: Pod) -> None:
        await super().refresh(pod)
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
async def running() -> AsyncIterator[tuple[World, SlowVolumes]]:
    world, volumes = World(), SlowVolumes()
    world.volumes = volumes
    await world.start_agent()
    world.create()
    await world.until(lambda: (found := world.registry.memory("u1")) is not None and found.prepared is not None)
    yield world, volumes
    await world.kill_agent()


async def test_a_change_during_a_refresh_causes_one_more(running: tuple[World, SlowVolumes]) -> None:
    world, volumes = running
    for _ in range(3):
        world.registry.refresh("u1")
        await settle()
    assert volumes.refreshed == ["u1"]
    volumes.open.set()
    await settle()
    assert volumes.refreshed == ["u1", "u1"]


@pytest.mark.parametrize(
    ("failure", "times"),
    [
        pytest.param(Temporary("no token now"), 2, id="may work later"),
        pytest.param(Permanent("denied"), 1, id="never works"),
    ],
)
async def test_a_failed_refresh_is_tried_again_unless_it_never_can_succeed(
    running: tuple[World, SlowVolumes], monkeypatch: pytest.MonkeyPatch, failure: NodewrightError, times: int
) -> None:
    monkeypatch.setattr("agent.pods.work.volume_refreshes._RETRY", 0.02)
    world, volumes = running
    volumes.open.set()
    volumes.failures = [failure]
    world.registry.refresh("u1")
    for _ in range(500):
        if len(volumes.refreshed) >= times:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # one more, should there be one
    assert volumes.refreshed == ["u1"] * times


async def test_a_pod_that_comes_back_with_the_same_uid_has_one_refresh_at_a_time() -> None:
    """As a static pod does: the cancelled refresh ends after the new one has begun."""
    volumes, memory = SlowVolumes(), PodMemory(pod(), pod(), Timeline(FakeClock()))
    volume_refreshes = VolumeRefreshes(volumes, lambda uid: None, FakeClock())
    volume_refreshes.request(memory)
    await settle()
    volume_refreshes.remove(memory.pod.uid)
    volume_refreshes.request(memory)
    await settle()
    volume_refreshes.request(memory)
    await settle()
    assert len(volumes.refreshed) == 2, "the third waits for the second"
    volumes.open.set()
    await settle()
    assert len(volumes.refreshed) == 3
    await volume_refreshes.close()


class TimedVolumes(FakeVolumes):
    """refresh() takes two seconds."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    async def refresh(self, pod: Pod) -> None:
        await super().refresh(pod)
        await self._clock.sleep(2)


async def test_sources_that_change_all_the_time_have_a_part_of_it() -> None:
    """All volumes of each of a namespace's pods were written again without a pause: half of a processor beside a map
    of 1,000 keys that changed five times a second, in three volumes of thirty pods."""
    clock = FakeClock()
    volumes, memory = TimedVolumes(clock), PodMemory(pod(), pod(), Timeline(clock))
    volume_refreshes = VolumeRefreshes(volumes, lambda uid: None, clock)
    for _ in range(80):
        volume_refreshes.request(memory)
        await settle()
        await clock.advance(1)
    assert 9 <= len(volumes.refreshed) <= 11
    await clock.advance(40)
    await settle()
    before = len(volumes.refreshed)
    volume_refreshes.request(memory)
    await settle()
    assert len(volumes.refreshed) == before + 1, "after a while without, at once"
    await volume_refreshes.close()


class CountedVolumes(FakeVolumes):
    def __init__(self) -> None:
        super().__init__()
        self.filled = 0

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        self.filled += 1
        return await super().mount(pod)


async def test_a_change_while_volumes_are_mounted_is_not_lost() -> None:
    """The content that is being written may be older than the change, and no other event would follow."""
    world, volumes = World(), CountedVolumes()
    world.volumes, volumes.slow = volumes, asyncio.Event()
    await world.start_agent()
    world.create()
    await world.until(lambda: volumes.filled == 1)
    world.registry.refresh("u1")
    volumes.slow.set()
    await world.until(world.is_ready)
    assert volumes.filled == 2
    await world.kill_agent()
