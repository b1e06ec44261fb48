"""Time as a parameter: code that waits takes a Clock, plans take the value of now()."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall seconds, monotonic seconds, and a sleep that a test can drive."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


async def at_most(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Wait until the event is set, but at most so many seconds of the clock."""
    sides = {asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(event.wait())}
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in sides:
            one.cancel()


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
