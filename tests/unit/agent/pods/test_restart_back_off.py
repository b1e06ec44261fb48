"""A container that ends again and again, with bounds of the back-off other than the default."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.common.model.states import BackOffBounds
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.restarts = BackOffBounds(2.0, 5.0)
    await made.start_agent()
    yield made
    await made.kill_agent()


async def test_a_container_that_ends_again_and_again_waits_no_longer_than_configured(world: World) -> None:
    world.create()
    waits = []
    for _ in range(6):
        began = world.clock.now()
        await world.until(lambda: world.cri.running() == ["main"], step=0.5)
        waits.append(world.clock.now() - began)
        world.cri.exit("main", 1)
        await settle(100)
    assert waits == pytest.approx([0, 0, 2, 4, 5, 5], abs=1)
    assert "back-off 5s restarting failed container=main" in world.container_status()["state"]["waiting"]["message"]


async def test_a_restarted_agent_derives_no_longer_wait(world: World) -> None:
    world.create()
    for _ in range(6):
        await world.until(lambda: world.cri.running() == ["main"], step=0.5)
        world.cri.exit("main", 1)
        await settle(50)
    await world.kill_agent()
    await world.start_agent()
    await world.clock.advance(2)
    assert world.cri.running() == []
    await world.until(lambda: world.cri.running() == ["main"], seconds=5)


async def test_the_end_of_the_node_is_no_crash(world: World) -> None:
    """As upstream's kubelet, which knows of no back-off after its start: the pod's sandbox went with the node."""
    uid = world.create()
    await world.until(lambda: world.cri.running() == ["main"], step=0.5)
    for _ in range(6):
        await world.kill_agent()
        world.cri.kill_sandbox(uid)
        await world.start_agent()
        await world.until(lambda: world.cri.running() == ["main"], seconds=1.5, step=0.5)


async def test_a_pod_that_ends_its_sandbox_again_and_again_waits_longer_each_time(world: World) -> None:
    """As root of a shared PID namespace may do by a signal to its process 1; init containers have no back-off then."""
    uid = world.create(initContainers=[container("first")])
    waits = []
    for _ in range(6):
        began = world.clock.now()
        await world.until(lambda: world.cri.running() == ["first"], step=0.5)
        waits.append(world.clock.now() - began)
        world.cri.kill_sandbox(uid)
        await settle(100)
    assert waits == pytest.approx([0, 0, 2, 4, 5, 5], abs=1)


async def test_a_sandbox_that_lived_for_long_is_replaced_at_once(world: World) -> None:
    uid = world.create()
    for _ in range(4):
        await world.until(lambda: world.cri.running() == ["main"], seconds=1.5, step=0.5)
        await world.clock.advance(6)
        world.cri.kill_sandbox(uid)
        await settle(100)
        # The container itself is backed off.
        await world.until(lambda: any(one.ready for one in world.cri.sandboxes.values()), seconds=1.5, step=0.5)
        await world.clock.advance(6)
