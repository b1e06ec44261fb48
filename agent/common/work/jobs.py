"""Work that may hang, done beside other work of its kind: one task for each key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)


class Jobs:
    """Starts tasks; one that hangs delays only the next of the same key. End them with close()."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[None]] = {}

    def start(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin `work`, which handles its own errors, unless the work that was started before it still runs."""
        if key not in self._running:
            task = self._running[key] = asyncio.create_task(work(), name=str(key))
            task.add_done_callback(lambda done: self._end(key, done))

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        await cancel_and_wait(*self._running.values())

    def _end(self, key: Hashable, done: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("%s failed", key, exc_info=error)
