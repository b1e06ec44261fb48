"""Time as a parameter: code that waits takes a Clock, plans take the value of now()."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol


class Clock(Protocol):
    """Three clocks, in seconds, and a sleep that a test can drive.

    - now(): since the epoch, to show and to compare with times of others. Somebody may set it at any moment.
    - monotonic(): for durations; of no use outside this process.
    - steady(): monotonic() counted from the epoch as it was when the process started. For deadlines of things that
      began at a time of the wall clock, see since().
    """

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def steady(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


def since(clock: Clock, wall: float) -> float:
    """The steady time of something that happened at the time `wall` of the wall clock; never in the future.

    To be asked once, when it is first seen: the wall clock may be set afterwards.
    """
    return min(wall + (clock.steady() - clock.now()), clock.steady())


async def at_most(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Wait until the event is set, but at most so many seconds of the clock."""
    sides = {asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(event.wait())}
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in sides:
            one.cancel()


async def rest_after(clock: Clock, began: float, times: float, longest: float = math.inf) -> None:
    """Sleep so many times as long as has passed since `began` (monotonic seconds), `longest` seconds at most, so that
    work which is asked for without end has a part of the time. Nothing if no time has passed."""
    if took := clock.monotonic() - began:
        await clock.sleep(min(times * took, longest))


_STARTED = time.time() - time.monotonic()


class SystemClock:
    """The machine's clocks; steady() is the same for all of them in a process."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def steady(self) -> float:
        return _STARTED + time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
