"""What the node frees before it evicts a pod, over the real table and workers on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.eviction.work.reclaim import NodeReclaim
from nodelib.errors import Temporary
from tests.fakes.pod_world import World


class Images:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def remove_unused(self) -> None:
        self.asked += 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start_agent()
    yield made
    await made.kill_agent()


async def finished(world: World) -> None:
    """A pod that has succeeded, whose records are still in the runtime."""
    world.create(restartPolicy="Never")
    await world.until(world.is_ready)
    world.cri.exit("main", 0)
    await world.until(lambda: world.registry.is_over("u1"))
    assert world.cri.containers and world.cri.sandboxes


async def test_the_records_of_ended_pods_are_gone_when_it_returns(world: World) -> None:
    """As soon as they are: no time passes on the clock, so nothing but an event can have woken it."""
    await finished(world)
    reclaiming = asyncio.create_task(NodeReclaim(world.registry, Images(), world.clock).remove_dead_containers())
    await asyncio.wait_for(reclaiming, 10)
    assert world.cri.dump() == []


async def test_a_record_that_cannot_be_removed_is_waited_for_no_longer_than_10_seconds(world: World) -> None:
    await finished(world)
    world.cri.fail["remove_container"] = [Temporary("busy") for _ in range(100)]
    reclaiming = asyncio.create_task(NodeReclaim(world.registry, Images(), world.clock).remove_dead_containers())
    await world.clock.advance(9)
    assert not reclaiming.done()
    await world.clock.advance(2)
    assert reclaiming.done() and reclaiming.exception() is None
    assert world.cri.containers


async def test_a_running_pod_keeps_its_containers(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    await asyncio.wait_for(NodeReclaim(world.registry, Images(), world.clock).remove_dead_containers(), 10)
    assert world.cri.running() == ["main"]


async def test_unused_images_are_left_to_their_collector(world: World) -> None:
    images = Images()
    await NodeReclaim(world.registry, images, world.clock).remove_unused_images()
    assert images.asked == 1
