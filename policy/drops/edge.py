"""Listens to the packets that our rules report: a socket, bounded in memory and in how fast it is read."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Awaitable, Callable

from nodelib import netfilter, nflog
from nodelib.clock import Clock
from nodelib.netfilter_listener import LARGEST, listening, readable, why
from nodelib.nflog import Record

log = logging.getLogger(__name__)

COPIED = 128  # bytes of a packet: what `Log` has the kernel copy
_GATHERED, _HUNDREDTHS = 16, 10  # records that the kernel sends together, and how long it waits for them
_BUFFER = 1 << 18
_AT_ONCE = 8  # datagrams of one turn
_PAUSE = 0.2  # seconds between two turns: a flood costs no more than _AT_ONCE datagrams in each
_TRY_AGAIN = 30.0  # seconds, after another program had the group

Take = Callable[[list[Record]], Awaitable[None]]


class Refusals:
    """The listener of one group. `counted` hears how many records came, and how many were lost before them.

    `problem`: why nothing is read, "" if it is.
    """

    def __init__(
        self,
        group: int,
        clock: Clock,
        counted: Callable[[int, int], None],
        *,
        connect: Callable[[], socket.socket] = netfilter.connect,
    ) -> None:
        self._group, self._clock, self._counted, self._connect = group, clock, counted, connect
        self._next: int | None = None
        self.problem = "it has just been started"

    async def run(self, take: Take) -> None:
        """Until cancelled."""
        while True:
            try:
                channel = listening(self._connect, self._requests(), _BUFFER)
            except OSError as error:
                self.problem = why(error, f"NFLOG group {self._group}")
                log.warning("refused packets are not reported: %s", self.problem)
                await self._clock.sleep(_TRY_AGAIN)
                continue
            self.problem, self._next = "", None
            try:
                with channel:
                    await self._read(channel, take)
            finally:
                self.problem = "the daemon is about to listen again"

    async def _read(self, channel: socket.socket, take: Take) -> None:
        while True:
            await readable(channel)
            for _ in range(_AT_ONCE):
                try:
                    data = channel.recv(LARGEST)
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    continue  # what did not fit is missing in the numbers of the next records
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

    def _requests(self) -> list[bytes]:
        return nflog.binding(self._group, copied=COPIED, gathered=_GATHERED, hundredths=_HUNDREDTHS)
