"""Turns of copies, which read and write all of a volume: one at a time of each namespace, and a few of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodelib.key_locks import KeyLocks

_AT_ONCE = 4


class Copies:
    """A namespace with a hundred large clones waits for itself, and the disk has time for everybody else."""

    def __init__(self) -> None:
        self._own: KeyLocks[str] = KeyLocks()
        self._all = asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        async with self._own.of(namespace), self._all:
            yield
