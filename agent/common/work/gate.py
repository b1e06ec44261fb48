"""A few at a time: of sixty sandboxes made side by side on two cores all are late, in turn most are early.

Who waits goes in by priority, first come first served among equals.
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
    """`places` may be held at a time, each for `longest` seconds at most (None: until its holder leaves): whoever
    hangs loses its place, so that it delays nobody for long.
    """

    def __init__(self, places: int = 4, longest: float | None = _LONGEST) -> None:
        self.places = places
        self._free, self._longest = places, longest
        self._waiting: list[_Turn] = []
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def place(self, priority: int = 0, who: object = None) -> AsyncIterator[None]:
        """Wait for one and hold it until the body ends. The highest `priority` of those who wait goes in first."""
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
        """How many wait for a place."""
        return len(self._waiting)

    def turn_of(self, who: object) -> int:
        """1: it is let in next; 0: it does not wait."""
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
                self._leave()  # it was given a place at the very moment
            else:
                self._waiting.remove(turn)  # places may be held for hours: nobody else would take it out
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.given.done():
                turn.given.set_result(None)
                return
        self._free += 1
