"""Turns of requests: a few at a time, and fewer of each namespace. So whoever writes in one holds up nobody else's.

HTTP/1.1 has a connection for each request that is under way: thousands at once are as many handshakes and buffers, here
and in the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from nodelib.kube.paths import namespace_of


class Turns:
    """`most` requests at a time, `of_one` of each namespace, in the order in which they come."""

    def __init__(self, most: int, of_one: int) -> None:
        self._all, self._of_one = asyncio.Semaphore(most), of_one
        self._namespaces: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, path: str) -> AsyncIterator[None]:
        """Wait for a turn for a request of this path, and hold it."""
        own = self._namespaces.setdefault(namespace_of(path), asyncio.Semaphore(self._of_one))
        async with own, self._all:
            yield
