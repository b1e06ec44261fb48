"""Volumes follow their sources: no change is lost, whatever else goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.common.model.pods import Pod
from agent.containers.model import PreparedPod
from agent.pods.work.memory import PodMemory
from agent.pods.work.refreshes import Refreshes
from agent.pods.work.timeline import Timeline
from nodelib.errors import NodewrightError, Permanent, Temporary
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.pod_world import FakeMaterials, World


class SlowMaterials(FakeMaterials):
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
async def running() -> AsyncIterator[tuple[World, SlowMaterials]]:
    world, materials = World(), SlowMaterials()
    world.materials = materials
    await world.start_agent()
    world.create()
    await world.until(lambda: (found := world.registry.memory("u1")) is not None and found.materials is not None)
    yield world, materials
    await world.kill_agent()


async def test_a_change_during_an_update(running: tuple[World, SlowMaterials]) -> None:
    world, materials = running
    for _ in range(3):
        world.registry.refresh("u1")
        await settle()
    assert materials.refreshed == ["u1"]
    materials.open.set()
    await settle()
    assert materials.refreshed == ["u1", "u1"]


@pytest.mark.parametrize(
    ("failure", "times"),
    [
        pytest.param(Temporary("no token now"), 2, id="may work later"),
        pytest.param(Permanent("denied"), 1, id="never works"),
    ],
)
async def test_an_update_that_fails(
    running: tuple[World, SlowMaterials], monkeypatch: pytest.MonkeyPatch, failure: NodewrightError, times: int
) -> None:
    monkeypatch.setattr("agent.pods.work.refreshes._RETRY", 0.02)
    world, materials = running
    materials.open.set()
    materials.failures = [failure]
    world.registry.refresh("u1")
    for _ in range(500):
        if len(materials.refreshed) >= times:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # one more, should there be one
    assert materials.refreshed == ["u1"] * times


async def test_a_pod_that_comes_back_under_its_uid_is_written_for_by_one_at_a_time() -> None:
    """A static pod does: what was forgotten ends after the new one has begun."""
    materials, memory = SlowMaterials(), PodMemory(pod(), pod(), Timeline(FakeClock()))
    refreshes = Refreshes(materials, lambda uid: None)
    refreshes.ask(memory)
    await settle()
    refreshes.forget(memory.pod.uid)
    refreshes.ask(memory)
    await settle()
    refreshes.ask(memory)
    await settle()
    assert len(materials.refreshed) == 2, "the third waits for the second"
    materials.open.set()
    await settle()
    assert len(materials.refreshed) == 3
    await refreshes.close()


class CountedMaterials(FakeMaterials):
    def __init__(self) -> None:
        super().__init__()
        self.filled = 0

    async def prepare(self, pod: Pod) -> PreparedPod:
        self.filled += 1
        return await super().prepare(pod)


async def test_a_change_while_the_volumes_are_filled_is_not_lost() -> None:
    """What is being written may be from before it, and nothing else would tell of it again."""
    world, materials = World(), CountedMaterials()
    world.materials, materials.slow = materials, asyncio.Event()
    await world.start_agent()
    world.create()
    await world.until(lambda: materials.filled == 1)
    world.registry.refresh("u1")
    materials.slow.set()
    await world.until(world.is_ready)
    assert materials.filled == 2
    await world.kill_agent()
