"""How much space new volumes may take: what one call has reserved is not given to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from csi import names
from csi.model import Kind
from csi.plan import sizes
from csi.ports import Disk


class Capacity:
    """`reserve`: the share of the file system that no volume gets."""

    def __init__(self, disk: Disk, reserve: float) -> None:
        self._disk, self._reserve = disk, reserve
        self._lock = asyncio.Lock()
        self._reserved = self._reserved_inline = 0

    async def available(self) -> int:
        """Bytes that a new volume may have."""
        space = await self._disk.space()
        return max(0, sizes.available(space, await self._disk.images(Kind.VOLUME), self._reserve) - self._reserved)

    async def available_inline(self) -> int:
        """Bytes, of the share that volumes of single pods have together."""
        inline = [one for one in await self._disk.images(Kind.VOLUME) if names.is_inline(one.id)]
        left = sizes.available_inline(await self._disk.space(), inline, self._reserve)
        return max(0, left - self._reserved_inline)

    @asynccontextmanager
    async def reserved(self, size: int, *, inline: bool = False) -> AsyncIterator[None]:
        """Inside, this much is reserved. Raises Refused when less is available."""
        async with self._lock:
            sizes.check_room(size, await self.available())
            if inline:
                sizes.check_room(size, await self.available_inline(), "inline volumes of pods")
                self._reserved_inline += size
            self._reserved += size
        try:
            yield
        finally:
            self._reserved -= size
            self._reserved_inline -= size if inline else 0
