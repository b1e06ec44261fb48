"""Accepts connections also while there are no descriptors.

asyncio's own server answers a lack of them with thousands of tracebacks each second.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from nodelib.shortage import is_shortage

log = logging.getLogger(__name__)

_NO_DESCRIPTOR = 0.5  # seconds until the next accept() after one that failed


async def next_connection(listener: socket.socket) -> socket.socket:
    """Waits for as long as it takes. A lack of descriptors is in the log once."""
    loop, failing = asyncio.get_running_loop(), False
    while True:
        try:
            return (await loop.sock_accept(listener))[0]
        except OSError as error:
            if not is_shortage(error):
                continue  # the client is gone already
            if not failing:
                log.warning("a connection could not be accepted: %s", error)
            failing = True
            await asyncio.sleep(_NO_DESCRIPTOR)
