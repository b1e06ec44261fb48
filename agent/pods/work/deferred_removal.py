"""Puts off the removal of dead pods' records while something is done that people wait for: a start, a termination.

Removing a sandbox costs the runtime as much as stopping it: when sixty pods are deleted at once, their terminations
would wait for removals. Upstream leaves removals to its garbage collector, which runs once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from nodelib.clock import Clock, at_most

_QUIET = 0.2  # seconds without urgent work; a pod's pause between two steps is shorter
_LONGEST = 20.0  # seconds that a removal waits at most
_AT_ONCE = 2  # removals


class DeferredRemoval:
    """One for all pods of the node."""

    def __init__(self) -> None:
        self._urgent = self._count = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._places = asyncio.Semaphore(_AT_ONCE)

    @contextlib.contextmanager
    def urgent(self) -> Iterator[None]:
        """While the block runs, something is done that people wait for."""
        self._urgent += 1
        self._count += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._quiet.set()

    @contextlib.asynccontextmanager
    async def turn(self, clock: Clock) -> AsyncIterator[None]:
        """Wait until nothing urgent goes on, or the longest wait is over. Only a few may remove at a time."""
        last = clock.monotonic() + _LONGEST
        async with self._places:
            while not await self._is_quiet(clock, last):
                pass
            yield

    async def _is_quiet(self, clock: Clock, last: float) -> bool:
        """Wait a little: True if nothing urgent happened meanwhile, or if the time `last` (monotonic) has come."""
        left = last - clock.monotonic()
        if left <= 0:
            return True
        before = self._count
        if self._quiet.is_set():
            await clock.sleep(min(_QUIET, left))
            return self._quiet.is_set() and before == self._count
        await at_most(clock, left, self._quiet)
        return False
