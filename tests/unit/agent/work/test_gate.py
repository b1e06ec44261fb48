from __future__ import annotations

import asyncio

import pytest

from agent.work import gate as module
from agent.work.gate import Gate
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


async def test_who_hangs_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST", 0.01)
    gate, entered = Gate(1), asyncio.Event()

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
