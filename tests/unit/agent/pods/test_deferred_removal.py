from __future__ import annotations

import asyncio

from agent.pods.work.deferred_removal import DeferredRemoval
from tests.fakes.clock import FakeClock, settle


class Removals:
    """DeferredRemoval that are removed in turn; `done` in their order."""

    def __init__(self) -> None:
        self.clock, self.leftovers = FakeClock(), DeferredRemoval()
        self.done: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, count: int, takes: float = 0.0) -> None:
        async def one(number: int) -> None:
            async with self.leftovers.turn(self.clock):
                await self.clock.sleep(takes)
                self.done.append(number)

        self.tasks += [asyncio.create_task(one(number)) for number in range(count)]

    async def after(self, seconds: float) -> int:
        """How many have been removed when that much more time has passed."""
        await self.clock.advance(seconds)
        await settle()
        return len(self.done)


async def test_nothing_is_waited_for_when_there_is_calm() -> None:
    there = Removals()
    there.ask(1)
    assert await there.after(0.5) == 1


async def test_the_pause_between_two_urgent_things_is_no_calm() -> None:
    there = Removals()
    there.ask(3)
    for _ in range(20):
        with there.leftovers.urgent():
            assert await there.after(0.1) == 0
        assert await there.after(0.1) == 0
    assert await there.after(2) == 3


async def test_a_few_at_a_time() -> None:
    there = Removals()
    there.ask(4, takes=1)
    assert await there.after(1.5) == 2
    assert await there.after(1.5) == 4


async def test_whoever_has_waited_for_long_goes_on_beside_what_is_urgent() -> None:
    there = Removals()
    with there.leftovers.urgent():
        there.ask(5, takes=0.1)
        assert await there.after(15) == 0
        assert await there.after(10) == 5


async def test_one_that_gives_up_leaves_its_place() -> None:
    there = Removals()
    with there.leftovers.urgent():
        there.ask(3)
        await settle()
        for task in there.tasks[:2]:
            task.cancel()
        await settle()
    assert await there.after(1) == 1
