"""A few at a time, first come first served: of sixty sandboxes made side by side on two cores all are late, in turn
most are early. Whoever hangs loses its place, so that it delays nobody for long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

_LONGEST = 1.0  # seconds that a place is held at most


class Gate:
    """`places` may be held at a time."""

    def __init__(self, places: int = 4) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for one and hold it until the body ends, a second at most."""
        await self._take()
        held = [True]

        def leave() -> None:
            if held.pop() if held else False:
                self._leave()

        timer = asyncio.get_running_loop().call_later(_LONGEST, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()

    async def _take(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it was given a place at the very moment
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
