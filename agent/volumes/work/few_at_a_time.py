"""Work on the volumes of one pod, of which it may have thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

_AT_ONCE = 16  # volumes that drivers are asked for at a time

T = TypeVar("T")


async def few_at_a_time(work: Iterable[Callable[[], Awaitable[T]]], running: set[asyncio.Task[T]]) -> list[T]:
    """The results of all, in their order. Raises the first error: what has begun goes on, and is in `running` so long.

    A driver may be at work, and a call that is cancelled says nothing of what it has done.
    """
    places, begun = asyncio.Semaphore(_AT_ONCE), set[int]()

    async def done(number: int, one: Callable[[], Awaitable[T]]) -> T:
        async with places:
            begun.add(number)
            return await one()

    tasks = [asyncio.create_task(done(number, one)) for number, one in enumerate(work)]
    for task in tasks:
        running.add(task)
        task.add_done_callback(running.discard)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for number, task in enumerate(tasks):
            if number not in begun:
                task.cancel()
