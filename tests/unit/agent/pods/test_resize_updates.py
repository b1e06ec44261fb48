"""Resizes of many pods at once: each update of a container is several processes of the runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.common.work.gate import Gate
from nodelib.json_values import Json
from tests.builders.pods import container
from tests.fakes.pod_world import World
from tests.unit.agent.pods.test_resize_plan import LARGE, SMALL

MANY = 10


class Updates:
    """Counts the updates that the runtime makes at once; each waits until it may end()."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way: list[str] = []
        self.most = 0
        self._may_end = asyncio.Event()
        before = world.cri.update_resources

        async def update(container_id: str, linux: Json) -> None:
            self.under_way.append(container_id)
            self.most = max(self.most, len(self.under_way))
            await self._may_end.wait()
            self.under_way.remove(container_id)
            await before(container_id, linux)

        monkeypatch.setattr(world.cri, "update_resources", update)

    def end(self) -> None:
        self._may_end.set()


def grow(raw: Any) -> None:
    raw["spec"]["containers"][0]["resources"] = LARGE
    raw["metadata"]["generation"] += 1


async def test_a_few_updates_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one for each pod, the runtime has all of the node's processors, and pods of others start seconds later."""
    world = World()
    await world.start_agent()
    try:
        for number in range(MANY):
            world.create(container(resources=SMALL), uid=f"u{number}", name=f"p{number}")
        await world.until(lambda: all(world.is_ready(f"u{number}") for number in range(MANY)))
        updates = Updates(world, monkeypatch)
        for number in range(MANY):
            world.api.update(f"u{number}", grow)
        await world.until(lambda: len(updates.under_way) >= 4)
        updates.end()
        await world.until(
            lambda: all(
                world.status(f"u{number}")["containerStatuses"][0].get("resources") == LARGE for number in range(MANY)
            )
        )
        assert updates.most <= 4
    finally:
        await world.kill_agent()


async def test_a_resize_that_waits_for_a_place_ends_with_its_pod() -> None:
    """Whoever resizes many pods would decide when the others of the node end."""
    world = World()
    world.update_gate = Gate(1, longest=None)
    await world.start_agent()
    try:
        world.create(container(resources=SMALL))
        await world.until(world.is_ready)
        async with world.update_gate.place():
            world.api.update("u1", grow)
            await world.until(lambda: world.update_gate.waiting)
            world.api.ask_deletion("u1", 30)
            await world.until(world.is_gone)
            assert world.update_gate.waiting == 0
    finally:
        await world.kill_agent()
