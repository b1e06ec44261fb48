"""A semaphore with priorities: a few callers at a time; the others wait by priority, those of one group as they came.

When sixty sandboxes start at once on two cores, all are late; one after the other, most are early. The groups take
turns: whoever makes a hundred pods in one namespace is not a hundred times before the pod of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

_LONGEST = 1.0  # seconds that a place is held at most


@dataclass(eq=False, slots=True)
class _Turn:
    later: int
    number: int
    given: asyncio.Future[None]
    who: object
    group: str


class Gate:
    """`places` may be held at a time, each for `longest` seconds at most (None: until its holder leaves), so that a
    caller that hangs does not delay the others for long. `counts_late`: whether those whose time is over count when
    groups take turns; not where they may stay for hours, or a group that has some there would never be next.
    """

    def __init__(self, places: int = 4, longest: float | None = _LONGEST, *, counts_late: bool = True) -> None:
        self.places, self._counts_late = places, counts_late
        self._free, self._longest = places, longest
        self._lines: dict[tuple[int, str], dict[_Turn, None]] = {}  # of a priority and a group, as they came
        self._numbers = itertools.count(1)
        self._inside: Counter[str] = Counter()  # callers of each group that count
        self._served: dict[str, int] = {}  # of groups with callers: when the last one was let in

    @contextlib.asynccontextmanager
    async def place(self, priority: int = 0, who: object = None, group: str = "") -> AsyncIterator[None]:
        """Wait for a place and hold it until the body ends. The waiting caller with the highest `priority` is next, of
        equals the one whose group has the fewest inside and was let in longest ago.
        """
        await self._take(priority, who, group)
        held, counted = [True], [group]

        def leave() -> None:
            if not self._counts_late:
                discount()
            if held.pop() if held else False:
                self._leave()

        def discount() -> None:
            self._inside -= Counter(counted)
            counted.clear()

        timer = asyncio.get_running_loop().call_later(self._longest, leave) if self._longest is not None else None
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            discount()
            leave()
            self._forget(group)

    @property
    def waiting(self) -> int:
        """How many callers wait for a place."""
        return sum(map(len, self._lines.values()))

    def turn_of(self, who: object) -> int:
        """The position of `who` in the queue: 1 is next, 0 is not waiting."""
        return next((number for number, one in enumerate(self._ordered(), 1) if one.who == who), 0)

    def turns(self) -> dict[object, int]:
        """turn_of() of all that wait, for whoever asks about many of them."""
        return {one.who: number for number, one in enumerate(self._ordered(), 1)}

    async def _take(self, priority: int, who: object, group: str) -> None:
        if self._free > 0:
            self._free -= 1
            self._enter(group)
            return
        turn = _Turn(-priority, next(self._numbers), asyncio.get_running_loop().create_future(), who, group)
        self._lines.setdefault((turn.later, group), {})[turn] = None
        try:
            await turn.given
        except asyncio.CancelledError:
            if turn.given.done() and not turn.given.cancelled():
                self._inside -= Counter([group])
                self._leave()  # it was given a place just now
            else:  # places may be held for hours: nothing else may remove it
                self._remove(turn)
            self._forget(group)
            raise

    def _leave(self) -> None:
        while self._lines:
            turn = self._next()
            self._remove(turn)
            if not turn.given.done():
                self._enter(turn.group)
                turn.given.set_result(None)
                return
        self._free += 1

    def _next(self) -> _Turn:
        """Who waits and is next. Only the first of each line is looked at: a pod may have thousands in one."""

        def order(one: _Turn) -> tuple[int, int, int, int]:
            return one.later, self._inside[one.group], self._served.get(one.group, 0), one.number

        return min((next(iter(line)) for line in self._lines.values()), key=order)

    def _remove(self, turn: _Turn) -> None:
        """Whoever was cancelled may have been passed over, and removed, already."""
        line = self._lines.get((turn.later, turn.group), {})
        line.pop(turn, None)
        if not line:
            self._lines.pop((turn.later, turn.group), None)

    def _enter(self, group: str) -> None:
        self._inside[group] += 1
        self._served[group] = next(self._numbers)

    def _forget(self, group: str) -> None:
        if not self._inside[group] and not any(waiting == group for _, waiting in self._lines):
            self._served.pop(group, None)

    def _ordered(self) -> list[_Turn]:
        """Who waits, the next one first."""
        keys = [
            ((later, self._inside[group] + before, self._served.get(group, 0), one.number), one)
            for (later, group), line in self._lines.items()
            for before, one in enumerate(line)
        ]
        return [one for _, one in sorted(keys, key=lambda pair: pair[0])]
