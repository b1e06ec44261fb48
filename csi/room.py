"""Room for new volumes: what one call has been promised is not promised to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from csi import names
from csi.model import Kind
from csi.plan import sizes
from csi.ports import Disk


class Room:
    """`reserve`: the share of the file system that no volume gets."""

    def __init__(self, disk: Disk, reserve: float) -> None:
        self._disk, self._reserve = disk, reserve
        self._lock = asyncio.Lock()
        self._pending = self._pending_inline = 0

    async def left(self) -> int:
        """Bytes."""
        space = await self._disk.space()
        return max(0, sizes.available(space, await self._disk.images(Kind.VOLUME), self._reserve) - self._pending)

    async def left_inline(self) -> int:
        """Bytes, of the share that volumes of single pods have together."""
        inline = [one for one in await self._disk.images(Kind.VOLUME) if names.is_inline(one.id)]
        left = sizes.available_inline(await self._disk.space(), inline, self._reserve)
        return max(0, left - self._pending_inline)

    @asynccontextmanager
    async def taken(self, size: int, *, inline: bool = False) -> AsyncIterator[None]:
        """Inside, this much is promised. Raises Refused when there is not as much left."""
        async with self._lock:
            sizes.check_room(size, await self.left())
            if inline:
                sizes.check_room(size, await self.left_inline(), "inline volumes of pods")
                self._pending_inline += size
            self._pending += size
        try:
            yield
        finally:
            self._pending -= size
            self._pending_inline -= size if inline else 0
