"""A value that one part writes and others read or follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """`now` is the newest."""

    def __init__(self, first: T) -> None:
        self.now = first
        self._followers: list[Callable[[], None]] = []

    def follow(self, told: Callable[[], None]) -> None:
        """Call `told` whenever it changes."""
        self._followers.append(told)

    def set(self, fresh: T) -> None:
        before, self.now = self.now, fresh
        if fresh != before:
            for told in self._followers:
                told()
