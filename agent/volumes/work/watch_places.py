"""Which objects are watched: each watch is a connection of its own, with its buffers here and in the API server."""

from __future__ import annotations

from collections import Counter

MOST = 1024
OF_NAMESPACE = 256


class WatchPlaces:
    """`most` watches at a time, `of_one` of each namespace. `waiting`: objects by namespace that have no watch."""

    def __init__(self, most: int = MOST, of_one: int = OF_NAMESPACE) -> None:
        self._most, self._of_one = most, of_one
        self._held: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()

    def take(self, namespace: str) -> bool:
        """Whether there is a place. Who has taken one leaves it."""
        if self._held[namespace] >= self._of_one or self._held.total() >= self._most:
            return False
        self._held[namespace] += 1
        return True

    def leave(self, namespace: str) -> None:
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
