"""Connections that are passed on to somebody: how many there may be, and which one gives way to a new one.

Everybody who reaches the port may connect and say nothing. Without a bound one client could take all descriptors of
this process: nobody else is accepted then (EMFILE), and what was accepted reaches nobody. Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import AsyncIterator

from nodelib.shortage import raise_file_limit

_MOST = 4096
_RESERVED = 192  # descriptors that are not for connections; asyncio accepts up to a hundred before it asks for room
_QUEUE = 32  # connections that wait for room; more are turned away
_FAIR = 2.0  # seconds in which a connection may be silent before it gives way
_LOOK = 0.05  # seconds between two looks


def most_connections() -> int:
    """How many fit, with two descriptors each, once this process may have as many files as the machine allows it."""
    raise_file_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(8, min(_MOST, (soft - _RESERVED) // 2))


class Slot:
    """The place of one connection and of what it leads to, until leave() or the end of both."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.at = asyncio.get_running_loop().time()
        self.has_spoken = self._is_given_up = False
        self._sides = [writer]

    def leads_to(self, writer: asyncio.StreamWriter) -> None:
        self._sides.append(writer)
        if self._is_given_up:
            writer.transport.abort()

    def heard(self) -> None:
        """A piece was passed on."""
        self.has_spoken = True
        self.at = asyncio.get_running_loop().time()

    def give_up(self) -> None:
        self._is_given_up = True
        for side in self._sides:
            side.transport.abort()

    async def leave(self) -> None:
        """Close both sides and wait until they are: one that does not take its last bytes has a descriptor still."""
        for side in self._sides:
            side.close()
        for side in self._sides:
            with contextlib.suppress(OSError):
                await side.wait_closed()


class ConnectionSlots:
    """For the connections of all ports of a process."""

    def __init__(self, most: int = 0, *, fair: float = _FAIR) -> None:
        self._most, self._fair = most or most_connections(), fair
        self._slots: dict[Slot, None] = {}
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def slot(self, writer: asyncio.StreamWriter) -> AsyncIterator[Slot | None]:
        """A place for the block; None when too many wait for one, and then the connection is closed at once."""
        if not await self._has_room():
            writer.transport.abort()
            yield None
            return
        one = Slot(writer)
        self._slots[one] = None
        try:
            yield one
            await one.leave()
        finally:
            self._slots.pop(one, None)

    async def _has_room(self) -> bool:
        if len(self._slots) < self._most:
            return True
        if self._waiting >= _QUEUE:
            return False
        self._waiting += 1
        try:
            while len(self._slots) >= self._most and not self._make_room():
                await asyncio.sleep(_LOOK)
            return True
        finally:
            self._waiting -= 1

    def _make_room(self) -> bool:
        """Close a connection that is silent: of whoever has the most, one that never said anything, the oldest."""
        until = asyncio.get_running_loop().time() - self._fair
        silent = [one for one in self._slots if one.at < until]
        if not silent:
            return False
        by_peer = Counter(one.peer for one in self._slots)
        loser = min(silent, key=lambda one: (-by_peer[one.peer], one.has_spoken, one.at))
        self._slots.pop(loser)
        loser.give_up()
        return True
