"""Who goes first: what people wait for (a pod that starts, a pod that goes) before the records of pods that are gone.

Removing a sandbox costs the runtime as much as stopping it; sixty pods that are deleted at once would wait for each
other's leftovers. Upstream leaves them to its collector, which comes once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from nodelib.clock import Clock, at_most

_LONGEST = 5.0  # seconds that leftovers wait


class Leftovers:
    """One for all pods of the node."""

    def __init__(self) -> None:
        self._urgent = 0
        self._calm = asyncio.Event()
        self._calm.set()

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        """Something is done that people wait for."""
        self._urgent += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._calm.set()

    async def turn(self, clock: Clock) -> None:
        """Until there is nothing more urgent, or it has been waited for long enough."""
        if self._calm.is_set():
            return
        await at_most(clock, _LONGEST, self._calm)
