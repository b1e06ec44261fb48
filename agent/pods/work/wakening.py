"""What makes a pod's worker plan again, and since when it waits for that."""

from __future__ import annotations

import asyncio

from nodelib.clock import Clock


class Wakening(asyncio.Event):
    """An event that knows when it was set."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._since = clock, 0.0

    def set(self) -> None:
        if not self.is_set():
            self._since = self._clock.now()
        super().set()

    def take(self) -> float:
        """Clear it. The wall time at which it was set, 0 if it was not."""
        since = self._since if self.is_set() else 0.0
        self.clear()
        return since
