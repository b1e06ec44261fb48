"""Listens to the packets that our rules report: a socket, bounded in memory and in how fast it is read."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable

from nodelib import netfilter, nflog
from nodelib.clock import Clock
from nodelib.netlink import messages
from nodelib.nflog import Record

log = logging.getLogger(__name__)

COPIED = 128  # bytes of a packet: what `Report` has the kernel copy
_GATHERED, _HUNDREDTHS = 16, 10  # records that the kernel sends together, and how long it waits for them
_BUFFER = 1 << 18
_RCVBUFFORCE = 33
_AT_ONCE = 8  # datagrams of one turn
_PAUSE = 0.2  # seconds between two turns: a flood costs no more than _AT_ONCE datagrams in each
_LARGEST = 1 << 16
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
                channel = self._listening()
            except OSError as error:
                self.problem = _why(error, self._group)
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
            await _readable(channel)
            for _ in range(_AT_ONCE):
                try:
                    data = channel.recv(_LARGEST)
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

    def _listening(self) -> socket.socket:
        """Raises OSError."""
        channel = self._connect()
        try:
            channel.settimeout(1)
            netfilter.reserve(channel, _RCVBUFFORCE, socket.SO_RCVBUF, _BUFFER)
            for request in nflog.binding(self._group, copied=COPIED, gathered=_GATHERED, hundredths=_HUNDREDTHS):
                channel.send(request)
                _acknowledged(channel)
            channel.setblocking(False)
        except BaseException:
            channel.close()
            raise
        return channel


def _acknowledged(channel: socket.socket) -> None:
    """Records may come before the last acknowledgement: they are not missed."""
    while True:
        for kind, _, _, payload in messages(channel.recv(_LARGEST)):
            if kind == netfilter.ERROR:
                return netfilter.check(payload)


async def _readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(channel, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(channel)


def _why(error: OSError, group: int) -> str:
    if error.errno in (errno.EBUSY, errno.EPERM):
        return f"another program of this node listens to NFLOG group {group} already"
    return f"NFLOG group {group}: {os.strerror(error.errno) if error.errno else error}"
