"""A clock that a test drives: sleeps end when advance() has passed their time."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class FakeClock:
    """Same Protocol as nodelib.clock.Clock. Starts at 2026-01-01T00:00:00Z."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = self._steady = now
        self._mono = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._mono

    def steady(self) -> float:
        return self._steady

    def step(self, seconds: float) -> None:
        """Set the wall clock: no time passes."""
        self._now += seconds

    @property
    def sleeping(self) -> int:
        """How many sleeps have not ended."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._mono + max(seconds, 0), next(self._order), waiting))
        await waiting

    async def advance(self, seconds: float) -> None:
        """Move time, waking sleepers in their order and letting what they wake run first."""
        await settle()
        end = self._mono + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, waiting = heapq.heappop(self._sleepers)
            self._move(due)
            if not waiting.done():
                waiting.set_result(None)
            await settle()
        self._move(end)

    def _move(self, monotonic: float) -> None:
        self._now += monotonic - self._mono
        self._steady += monotonic - self._mono
        self._mono = monotonic


async def settle(rounds: int = 30) -> None:
    """Let every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
