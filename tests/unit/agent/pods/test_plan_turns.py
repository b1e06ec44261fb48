"""A large pod whose plans have used up the share of its namespace still ends at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agent.common.model.eviction import Eviction
from agent.pods.work import plan_turns
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World


def delete(world: World) -> None:
    world.api.ask_deletion("u1", 3)


def force_delete(world: World) -> None:
    world.api.vanish("u1")


def evict(world: World) -> None:
    pod = world.registry.pod("shop", "web")
    assert pod is not None
    world.registry.evict(Eviction(pod, "Evicted", "The node was low on resource: memory. ", 3))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """With one pod, which is large from now on, and rests for hours after each plan."""
    monkeypatch.setattr(plan_turns, "SHARE", 1e-9)
    monkeypatch.setattr(plan_turns, "LARGE", 1000.0)
    made = World()
    await made.start_agent()
    made.create(initContainers=[container("side", restartPolicy="Always")], terminationGracePeriodSeconds=600)
    await made.until(made.is_ready)
    monkeypatch.setattr(plan_turns, "LARGE", 0.0)
    await change(made)
    yield made
    await made.kill_agent()


async def change(world: World, times: int = 3) -> None:
    for number in range(times):
        world.api.update("u1", lambda raw, value=str(number): raw["metadata"].update(labels={"a": value}))
        await settle()


@pytest.mark.parametrize("end", [delete, force_delete, evict])
async def test_the_end_of_a_large_pod_waits_for_no_turn(world: World, end: Callable[[World], None]) -> None:
    """An eviction, the end of a node and a deletion waited in line with the other large pods of the namespace, and then
    its sidecars, its sandbox and its volumes."""
    end(world)
    await world.until(lambda: world.registry.is_over("u1"), seconds=10)


async def test_nor_does_a_shorter_grace(world: World) -> None:
    world.cri.ignores_term.add("main")
    world.api.ask_deletion("u1", 600)
    await change(world)
    delete(world)
    await world.until(lambda: world.registry.is_over("u1"), seconds=10)


async def test_changes_of_a_pod_that_ends_wait_as_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cri.ignores_term.add("main")
    delete(world)
    await settle()
    looked: list[bool] = []
    monkeypatch.setattr(plan_turns.PlanTurn, "end", lambda turn: looked.append(True))
    await change(world, 5)
    assert not looked


async def test_the_ends_of_large_pods_have_a_part_of_the_loop_too() -> None:
    """A hundred that are deleted together held the loop for ten seconds."""
    used = [0.0]
    turns = plan_turns.PlanTurns(lambda: used[0])
    first, second, living = (turns.of("a") for _ in range(3))
    for turn in (first, second, living):
        turn.urgent.set()
        turn.begin()
        used[0] += 0.1
        turn.end()
    living.urgent.clear()
    await asyncio.wait_for(living.wait(), 5)
    for turn in (first, second):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turn.wait(), 0.01)


async def test_many_pods_of_some_hundred_containers_are_large_too() -> None:
    """Eight of 250 had 95 % of the loop, where one of 2,000 had a fifth."""
    used = [0.0]
    turns = plan_turns.PlanTurns(lambda: used[0])
    eight = [turns.of("a") for _ in range(8)]
    for turn in eight * 2:
        turn.begin()
        used[0] += 0.012
        turn.end()
    for turn in eight:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turn.wait(), 0.01)


async def test_pods_of_some_containers_wait_for_nobody() -> None:
    used = [0.0]
    turn = plan_turns.PlanTurns(lambda: used[0]).of("a")
    for _ in range(100):
        turn.begin()
        used[0] += 0.003  # the first plan of 20 containers
        turn.end()
        await asyncio.wait_for(turn.wait(), 5)
