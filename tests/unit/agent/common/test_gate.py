from __future__ import annotations

import asyncio

from agent.common.work.gate import Gate
from tests.fakes.clock import settle


async def test_places_are_given_in_turn() -> None:
    gate, order, go = Gate(2), list[int](), asyncio.Event()

    async def one(number: int) -> None:
        async with gate.place():
            order.append(number)
            await go.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await settle()
    assert order == [0, 1]
    tasks[2].cancel()  # waits: gives up its turn
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 4]
    async with gate.place(), gate.place():
        pass


async def test_who_hangs_loses_its_place() -> None:
    gate, entered = Gate(1, longest=0.01), asyncio.Event()

    async def hang() -> None:
        async with gate.place():
            await asyncio.Event().wait()

    async def other() -> None:
        async with gate.place():
            entered.set()

    hanging, following = asyncio.create_task(hang()), asyncio.create_task(other())
    await asyncio.wait_for(entered.wait(), 10)
    hanging.cancel()
    await asyncio.gather(hanging, following, return_exceptions=True)
    async with asyncio.timeout(10):
        async with gate.place():
            pass


async def test_who_waits_goes_in_by_priority_and_first_come_first_served_among_equals() -> None:
    gate, order = Gate(1, longest=None), list[str]()
    go = asyncio.Event()

    async def one(who: str, priority: int) -> None:
        async with gate.place(priority, who):
            order.append(who)
            await go.wait()

    asked = {"first": 0, "low": 0, "high": 1000, "lower": -5, "low too": 0, "high too": 1000}
    tasks = [asyncio.create_task(one(who, priority)) for who, priority in asked.items()]
    await settle()
    assert [gate.turn_of(who) for who in asked] == [0, 3, 1, 5, 4, 2]
    tasks[2].cancel()
    await settle()
    assert gate.turn_of("high too") == 1
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["first", "high too", "low", "low too", "lower"]
    assert gate.turn_of("low") == 0


async def test_who_gives_up_its_turn_leaves_nothing_behind() -> None:
    """A pull may hold its place for an hour, while one pod after the other comes and goes."""
    gate = Gate(1, longest=None)
    async with gate.place():
        for _ in range(3):
            task = asyncio.create_task(_enter(gate))
            await settle()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert gate.waiting == 0
    async with gate.place():
        pass


async def _enter(gate: Gate) -> None:
    async with gate.place():
        pass
