"""When which probe is due next: one queue for the probes of all pods."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from agent.probes.model import Key
from nodelib.clock import Clock


class DueTimes:
    """Keys by due time, which is monotonic. A key is due once: schedule() of one that is here already moves it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    def schedule(self, key: Key, due: float) -> None:
        self._due[key] = due
        heapq.heappush(self._queue, (due, next(self._order), key))
        if self._queue[0][2] == key:
            self._sooner.set()

    def unschedule(self, key: Key) -> None:
        self._due.pop(key, None)

    def take(self) -> list[Key]:
        """The keys that are due by now, the earliest first; they are scheduled no longer."""
        now, found = self._clock.monotonic(), []
        while self._queue and self._queue[0][0] <= now:
            due, _, key = heapq.heappop(self._queue)
            if self._due.get(key) == due:  # else it was unscheduled or moved meanwhile
                del self._due[key]
                found.append(key)
        return found

    async def wait(self) -> None:
        """Until the earliest key is due, or one was scheduled that is earlier."""
        self._sooner.clear()
        timer = (
            asyncio.ensure_future(self._clock.sleep(max(0.0, self._queue[0][0] - self._clock.monotonic())))
            if self._queue
            else None
        )
        sooner = asyncio.ensure_future(self._sooner.wait())
        try:
            await asyncio.wait({sooner} | ({timer} if timer else set()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sooner.cancel()
            if timer is not None:
                timer.cancel()
