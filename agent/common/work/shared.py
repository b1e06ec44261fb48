"""A collection that goes on when whoever asked has left.

A scraper leaves after ten seconds and comes again, but a thread that walks a pod's millions of files cannot be ended:
each visit would leave one more of them behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """At most one collection at a time; who asks meanwhile gets what it finds."""

    def __init__(self) -> None:
        self._under_way: asyncio.Task[T] | None = None

    async def get(self, collect: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the collection under way finds, or a new one. Raises what it raises."""
        if self._under_way is None:
            self._under_way = asyncio.create_task(collect(), name="stats are collected")
            self._under_way.add_done_callback(self._ended)
        return await asyncio.shield(self._under_way)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._under_way = None
        if not task.cancelled():
            task.exception()  # or asyncio reports that nobody asked for it
