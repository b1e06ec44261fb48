"""A socket to which the kernel sends packets by itself (NFLOG, NFQUEUE), for an event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable

from nodelib import netfilter
from nodelib.netlink import messages

LARGEST = 1 << 17  # bytes of one datagram
_RCVBUFFORCE = 33


def listening(connect: Callable[[], socket.socket], requests: Iterable[bytes], size: int) -> socket.socket:
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


def why(error: OSError, what: str) -> str:
    """Why nobody listens. `what`: such as "NFLOG group 5"."""
    if error.errno in (errno.EBUSY, errno.EPERM):
        return f"another program of this node listens to {what} already"
    return f"{what}: {os.strerror(error.errno) if error.errno else error}"


def _acknowledged(channel: socket.socket) -> None:
    """Packets may come before the last acknowledgement: nobody waits for these few."""
    while True:
        for kind, _, _, payload in messages(channel.recv(LARGEST)):
            if kind == netfilter.ERROR:
                return netfilter.check(payload)
