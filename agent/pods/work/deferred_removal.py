"""Who goes first: what people wait for (a pod that starts, a pod that goes) before the records of pods that are gone.

Removing a sandbox costs the runtime as much as stopping it; sixty pods that are deleted at once would wait for each
other's leftovers. Upstream leaves them to its collector, which comes once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from nodelib.clock import Clock, at_most

_CALM = 0.2  # seconds without anything urgent: between two steps of a pod there is no calm
_LONGEST = 20.0  # seconds that leftovers wait
_AT_ONCE = 2


class DeferredRemoval:
    """One for all pods of the node."""

    def __init__(self) -> None:
        self._urgent = self._begun = 0
        self._calm = asyncio.Event()
        self._calm.set()
        self._places = asyncio.Semaphore(_AT_ONCE)

    @contextlib.contextmanager
    def urgent(self) -> Iterator[None]:
        """Something is done that people wait for."""
        self._urgent += 1
        self._begun += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._calm.set()

    @contextlib.asynccontextmanager
    async def turn(self, clock: Clock) -> AsyncIterator[None]:
        """Entered when there is nothing more urgent, or it has been waited for long enough; by a few at a time."""
        last = clock.monotonic() + _LONGEST
        async with self._places:
            while not await self._is_calm(clock, last):
                pass
            yield

    async def _is_calm(self, clock: Clock, last: float) -> bool:
        """Whether it is, after a look of some time; True when `last` has passed."""
        left = last - clock.monotonic()
        if left <= 0:
            return True
        begun = self._begun
        if self._calm.is_set():
            await clock.sleep(min(_CALM, left))
            return self._calm.is_set() and begun == self._begun
        await at_most(clock, left, self._calm)
        return False
