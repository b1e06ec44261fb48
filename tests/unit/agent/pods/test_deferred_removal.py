"""Removals wait for urgent work, but not for ever."""

from __future__ import annotations

import asyncio

from agent.pods.work.deferred_removal import DeferredRemoval
from tests.fakes.clock import FakeClock, settle


class Removals:
    """Removals through one DeferredRemoval; `done` has their numbers in order."""

    def __init__(self) -> None:
        self.clock, self.removal = FakeClock(), DeferredRemoval()
        self.done: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, count: int, takes: float = 0.0) -> None:
        async def one(number: int) -> None:
            async with self.removal.turn(self.clock):
                await self.clock.sleep(takes)
                self.done.append(number)

        self.tasks += [asyncio.create_task(one(number)) for number in range(count)]

    async def after(self, seconds: float) -> int:
        """How many have been removed when that much more time has passed."""
        await self.clock.advance(seconds)
        await settle()
        return len(self.done)


async def test_a_removal_does_not_wait_when_nothing_urgent_goes_on() -> None:
    removals = Removals()
    removals.start(1)
    assert await removals.after(0.5) == 1


async def test_a_short_pause_between_urgent_work_starts_no_removal() -> None:
    removals = Removals()
    removals.start(3)
    for _ in range(20):
        with removals.removal.urgent():
            assert await removals.after(0.1) == 0
        assert await removals.after(0.1) == 0
    assert await removals.after(2) == 3


async def test_two_removals_run_at_a_time() -> None:
    removals = Removals()
    removals.start(4, takes=1)
    assert await removals.after(1.5) == 2
    assert await removals.after(1.5) == 4


async def test_a_removal_waits_for_urgent_work_only_so_long() -> None:
    removals = Removals()
    with removals.removal.urgent():
        removals.start(5, takes=0.1)
        assert await removals.after(15) == 0
        assert await removals.after(10) == 5


async def test_a_cancelled_removal_frees_its_place() -> None:
    removals = Removals()
    with removals.removal.urgent():
        removals.start(3)
        await settle()
        for task in removals.tasks[:2]:
            task.cancel()
        await settle()
    assert await removals.after(1) == 1
