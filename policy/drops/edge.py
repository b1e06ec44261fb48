"""Listens to the packets that our rules report: a socket, bounded in memory and in how fast it is read."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

from nodelib.clock import Clock
from nodelib.netlink import netfilter, nflog
from nodelib.netlink.listener import Listener, datagrams, readable
from nodelib.netlink.nflog import Record

COPIED = 128  # bytes of a packet: what `Log` has the kernel copy
_GATHERED, _HUNDREDTHS = 16, 10  # records that the kernel sends together, and how long it waits for them
_BUFFER = 1 << 18
_AT_ONCE = 8  # datagrams of one turn
_PAUSE = 0.2  # seconds between two turns: a flood costs no more than _AT_ONCE datagrams in each

Take = Callable[[list[Record]], Awaitable[None]]


class Refusals:
    """The listener of one group. `counted` is called with how many records came, and how many were lost before them."""

    def __init__(
        self,
        group: int,
        clock: Clock,
        counted: Callable[[int, int], None],
        *,
        connect: Callable[[], socket.socket] = netfilter.connect,
    ) -> None:
        self._clock, self._counted = clock, counted
        self._next: int | None = None
        requests = nflog.binding(group, copied=COPIED, gathered=_GATHERED, hundredths=_HUNDREDTHS)
        self._listener = Listener(f"NFLOG group {group}", requests, _BUFFER, clock, connect)

    @property
    def problem(self) -> str:
        """Why nothing is read, "" if it is."""
        return self._listener.problem

    async def run(self, take: Take) -> None:
        """Until cancelled."""
        await self._listener.run(lambda channel: self._read(channel, take), "refused packets are not reported")

    async def _read(self, channel: socket.socket, take: Take) -> None:
        self._next = None
        while True:
            await readable(channel)
            for data in datagrams(channel, _AT_ONCE):  # what was thrown away is missing in the numbers of later records
                found = list(nflog.records(data))
                self._count(found)
                await take(found)
            await self._clock.sleep(_PAUSE)

    def _count(self, found: list[Record]) -> None:
        lost = 0
        for one in found:
            if one.number is None:
                continue
            if self._next is not None:
                lost += (one.number - self._next) & 0xFFFFFFFF
            self._next = (one.number + 1) & 0xFFFFFFFF
        self._counted(len(found), lost)
