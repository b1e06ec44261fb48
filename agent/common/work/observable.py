"""Values and signals that one part sets and others follow. They are made before the parts that use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from nodelib.clock import Clock, at_most

T = TypeVar("T")


class Signal:
    """Something that happens: fire() calls every follower before it returns."""

    def __init__(self) -> None:
        self._followers: list[Callable[[], None]] = []

    def follow(self, follower: Callable[[], None]) -> None:
        """Call `follower` each time."""
        self._followers.append(follower)

    def unfollow(self, follower: Callable[[], None]) -> None:
        self._followers.remove(follower)

    def fire(self) -> None:
        for follower in tuple(self._followers):
            follower()


class Observable(Generic[T]):
    """`now` is the newest value."""

    def __init__(self, first: T) -> None:
        self.now = first
        self._changed = Signal()

    def follow(self, follower: Callable[[], None]) -> None:
        """Call `follower` whenever the value changes."""
        self._changed.follow(follower)

    def unfollow(self, follower: Callable[[], None]) -> None:
        self._changed.unfollow(follower)

    def set(self, fresh: T) -> None:
        before, self.now = self.now, fresh
        if fresh != before:
            self._changed.fire()


async def until(value: Observable[T], holds: Callable[[T], bool]) -> None:
    """Return as soon as `holds(value.now)`; the caller limits the time."""
    changed = asyncio.Event()
    value.follow(changed.set)
    try:
        while not holds(value.now):
            changed.clear()
            await changed.wait()
    finally:
        value.unfollow(changed.set)


async def until_within(signal: Signal, holds: Callable[[], bool], clock: Clock, limit: float) -> bool:
    """True as soon as `holds()`, which is asked again each time the signal fires; False after `limit` seconds."""
    fired, end = asyncio.Event(), clock.monotonic() + limit
    signal.follow(fired.set)
    try:
        while not holds():
            left = end - clock.monotonic()
            if left <= 0:
                return False
            fired.clear()
            await at_most(clock, left, fired)
        return True
    finally:
        signal.unfollow(fired.set)
