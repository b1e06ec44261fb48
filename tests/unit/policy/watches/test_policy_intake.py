"""NetworkPolicies on their way from the watch: small ones at once, large ones in a thread, and the newest of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from policy.model import Direction, Name, Policy, Problem
from policy.plan import parse
from policy.watches.policy_intake import PolicyIntake
from tests.builders.policies import block, policy
from tests.fakes.clock import FakeClock
from tests.waiting import until

LARGE = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(2000)]


def large(entries: int = 1, name: str = "large", namespace: str = "a") -> Json:
    return policy(name, namespace=namespace, ingress=[{"from": [block(one) for one in LARGE]}] * entries)


class World:
    def __init__(self) -> None:
        self.took: list[tuple[str, int]] = []
        self.gone: list[Name] = []
        self.read_in: list[int] = []
        self.held = threading.Event()
        self.held.set()
        self.clock = FakeClock()
        self.intake = PolicyIntake(self._took, self.gone.append, self.clock)

    def _took(self, found: Policy, uid: str, problems: Sequence[Problem]) -> None:
        self.took.append((found.name.name, len(found.rules[Direction.INGRESS])))

    def read(self, obj: Json) -> Any:
        self.read_in.append(threading.get_ident())
        self.held.wait(10)
        return READ(obj)


READ = parse.policy


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World()
    monkeypatch.setattr(parse, "policy", made.read)
    task = asyncio.create_task(made.intake.run())
    yield made
    made.held.set()
    await cancel_and_wait(task)


async def test_a_small_one_is_read_at_once(world: World) -> None:
    world.intake.on_policy("ADDED", policy("p", ingress=[{}]))
    assert world.took == [("p", 1)] and world.read_in == [threading.get_ident()]
    world.intake.on_policy("DELETED", policy("p"))
    assert world.gone == [Name("a", "p")]
    await world.intake.settled()


async def test_a_large_one_is_read_beside_the_loop_though_the_watch_empties_it(world: World) -> None:
    obj = large()
    world.intake.on_policy("ADDED", obj)
    obj.clear()
    assert world.took == []
    await world.intake.settled()
    assert world.took == [("large", 1)] and threading.get_ident() not in world.read_in


async def test_of_one_that_changes_again_and_again_the_newest_is_read(world: World) -> None:
    world.held.clear()
    world.intake.on_policy("ADDED", large())
    await until(lambda: world.read_in)
    for entries in (2, 3, 4):
        world.intake.on_policy("MODIFIED", large(entries))
    world.intake.on_policy("MODIFIED", policy("large", ingress=[{}] * 5))  # small by now, and yet not before the others
    world.held.set()
    await until(lambda: world.clock.sleeping)
    await world.clock.advance(10)
    await world.intake.settled()
    assert world.took == [("large", 1), ("large", 5)]


async def test_one_that_is_deleted_while_it_is_read_stays_deleted(world: World) -> None:
    world.held.clear()
    world.intake.on_policy("ADDED", large())
    await until(lambda: world.read_in)
    world.intake.on_policy("DELETED", large())
    world.held.set()
    await world.intake.settled()
    assert world.took == [] and world.gone == [Name("a", "large")]


async def test_a_namespace_that_writes_much_waits_and_nobody_else_does(world: World) -> None:
    """Written every second, one policy of a megabyte kept the kernel of each node busy: new pods waited for it."""
    await world.intake.settled()
    world.intake.on_policy("ADDED", large(14))
    await until(lambda: world.took == [("large", 14)])
    world.intake.on_policy("MODIFIED", large(15))
    world.intake.on_policy("ADDED", policy("small", ingress=[{}]))
    world.intake.on_policy("ADDED", policy("of another", namespace="b", ingress=[{}]))
    assert world.took[1:] == [("of another", 1)]
    world.intake.on_policy("ADDED", large(2, namespace="b"))
    await until(lambda: world.took[2:] == [("large", 2)])
    await world.clock.advance(10)
    world.intake.on_policy("MODIFIED", large(16))
    assert len(world.took) == 3
    await until(lambda: world.clock.sleeping)
    await world.clock.advance(120)
    await until(lambda: ("large", 16) in world.took)
    await until(lambda: world.clock.sleeping)
    await world.clock.advance(120)
    await until(lambda: ("small", 1) in world.took)
    assert ("large", 15) not in world.took


async def test_whoever_waits_is_deleted_at_once(world: World) -> None:
    await world.intake.settled()
    world.intake.on_policy("ADDED", large(14))
    await until(lambda: world.took)
    world.intake.on_policy("MODIFIED", large(15))
    world.intake.on_policy("DELETED", large(15))
    assert world.gone == [Name("a", "large")]
    await world.clock.advance(1000)
    assert world.took == [("large", 14)]


async def test_what_is_listed_first_does_not_wait(world: World) -> None:
    for number in range(5):
        world.intake.on_policy("ADDED", large(12, f"large{number}"))
    settled = asyncio.create_task(world.intake.settled())
    for _ in range(5):
        await until(lambda: world.clock.sleeping or settled.done())
        await world.clock.advance(2)
    await settled
    assert len(world.took) == 5
