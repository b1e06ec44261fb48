"""Work that something asks for again and again: done at once, and then after longer and longer pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodelib.backoff import Backoff
from nodelib.clock import Clock

_FIRST, _LONGEST = 0.5, 10.0  # seconds


class Spaced:
    """`work()` is called soon after poke(); once nothing has asked for it during a pause, the next time at once again.

    run() is long-lived.
    """

    def __init__(self, work: Callable[[], None], clock: Clock) -> None:
        self._work, self._clock = work, clock
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Any number of them during a pause lead to one call after it."""
        self._poked.set()

    async def run(self) -> None:
        """Until cancelled."""
        pause = Backoff(_FIRST, _LONGEST)
        while True:
            await self._poked.wait()
            self._poked.clear()
            self._work()
            await self._clock.sleep(pause.next())
            if not self._poked.is_set():
                pause.reset()
