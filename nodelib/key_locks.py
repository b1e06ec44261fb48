"""One lock for each key: who works on one object waits for nobody who works on another."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)


class KeyLocks(Generic[Key]):
    """`async with locks.of(key):` one task at a time. A lock is removed with the last task that holds or awaits it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())
