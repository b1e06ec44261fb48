"""A socket to which the kernel sends packets by itself (NFLOG, NFQUEUE), for an event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from nodelib.clock import Clock
from nodelib.netlink import netfilter
from nodelib.netlink.framing import messages

log = logging.getLogger(__name__)

_LARGEST = 1 << 17  # bytes of one datagram
_RCVBUFFORCE = 33
_TRY_AGAIN = 30.0  # seconds, after another program had the group or queue


class Listener:
    """Opens the socket, and opens it again after another program had it.

    `what`: such as "NFLOG group 5"; `requests` make the socket its listener; `size`: bytes of its buffer. `problem`:
    why nothing is read, "" if it is.
    """

    def __init__(
        self, what: str, requests: Sequence[bytes], size: int, clock: Clock, connect: Callable[[], socket.socket]
    ) -> None:
        self._what, self._requests, self._size = what, requests, size
        self._clock, self._connect = clock, connect
        self.problem = "it has just been started"

    async def run(self, read: Callable[[socket.socket], Awaitable[None]], warning: str) -> None:
        """Until cancelled. `read` reads until cancelled, too; `warning` is logged where nobody can listen."""
        while True:
            try:
                channel = _listening(self._connect, self._requests, self._size)
            except OSError as error:
                self.problem = _why(error, self._what)
                log.warning("%s: %s", warning, self.problem)
                await self._clock.sleep(_TRY_AGAIN)
                continue
            self.problem = ""
            try:
                with channel:
                    await read(channel)
            finally:
                self.problem = "the daemon is about to listen again"


def datagrams(channel: socket.socket, most: int) -> Iterator[bytes]:
    """What is there to be read, at most so many; b"" where the kernel had to throw some away. Raises OSError."""
    for _ in range(most):
        try:
            yield channel.recv(_LARGEST)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            yield b""


def _listening(connect: Callable[[], socket.socket], requests: Iterable[bytes], size: int) -> socket.socket:
    """A socket for which the kernel has acknowledged the requests, with a buffer of that size. Raises OSError."""
    channel = connect()
    try:
        channel.settimeout(1)
        netfilter.reserve(channel, _RCVBUFFORCE, socket.SO_RCVBUF, size)
        for request in requests:
            channel.send(request)
            _acknowledged(channel)
        channel.setblocking(False)
    except BaseException:
        channel.close()
        raise
    return channel


async def readable(channel: socket.socket) -> None:
    """Wait until there is something to read."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(channel, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(channel)


def _why(error: OSError, what: str) -> str:
    """Why nobody listens."""
    if error.errno in (errno.EBUSY, errno.EPERM):
        return f"another program of this node listens to {what} already"
    return f"{what}: {os.strerror(error.errno) if error.errno else error}"


def _acknowledged(channel: socket.socket) -> None:
    """Packets may come before the last acknowledgement: nobody waits for these few."""
    while True:
        for kind, _, _, payload in messages(channel.recv(_LARGEST)):
            if kind == netfilter.ERROR:
                return netfilter.check(payload)
