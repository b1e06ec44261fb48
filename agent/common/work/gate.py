"""A semaphore with priorities: a few callers at a time, the others wait by priority, then in the order they came.

When sixty sandboxes start at once on two cores, all are late; one after the other, most are early.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

_LONGEST = 1.0  # seconds that a place is held at most


@dataclass(order=True, slots=True)
class _Turn:
    later: int
    number: int
    given: asyncio.Future[None] = field(compare=False)
    who: object = field(compare=False, default=None)


class Gate:
    """`places` may be held at a time, each for `longest` seconds at most (None: until its holder leaves), so that a
    caller that hangs does not delay the others for long.
    """

    def __init__(self, places: int = 4, longest: float | None = _LONGEST) -> None:
        self.places = places
        self._free, self._longest = places, longest
        self._waiting: list[_Turn] = []
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def place(self, priority: int = 0, who: object = None) -> AsyncIterator[None]:
        """Wait for a place and hold it until the body ends. The waiting caller with the highest `priority` is next."""
        await self._take(priority, who)
        held = [True]

        def leave() -> None:
            if held.pop() if held else False:
                self._leave()

        timer = asyncio.get_running_loop().call_later(self._longest, leave) if self._longest is not None else None
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            leave()

    @property
    def waiting(self) -> int:
        """How many callers wait for a place."""
        return len(self._waiting)

    def turn_of(self, who: object) -> int:
        """The position of `who` in the queue: 1 is next, 0 is not waiting."""
        waiting = [one.who for one in self._waiting]
        return waiting.index(who) + 1 if who in waiting else 0

    async def _take(self, priority: int, who: object) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = _Turn(-priority, next(self._numbers), asyncio.get_running_loop().create_future(), who)
        bisect.insort(self._waiting, turn)
        try:
            await turn.given
        except asyncio.CancelledError:
            if turn.given.done() and not turn.given.cancelled():
                self._leave()  # it was given a place just now
            else:
                self._waiting.remove(turn)  # places may be held for hours: nothing else removes it
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.given.done():
                turn.given.set_result(None)
                return
        self._free += 1
