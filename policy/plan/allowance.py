"""How much of its NetworkPolicies a namespace may have read again and again. Pure: it is told the time.

A policy of a megabyte costs each node that has a pod of it seconds of planning and of the kernel's time, in which no
new pod of anybody gets its rules. Once is no harm; whoever writes it every second would keep all others waiting. So a
namespace has a store of bytes, and when it is used up waits until it has grown again.
"""

from __future__ import annotations

STORE = 1 << 20
"""Bytes at once; one object may have more, and then uses up more than there is."""
RATE = 12 << 10
"""Bytes a second: of the most expensive policies, some seconds of work in two minutes."""
_LEAST = 256  # bytes that any change costs
_KEPT = 1000  # namespaces


class Allowance:
    """Of each namespace, what it has used and not got back yet."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}  # bytes, and when that was

    def wait(self, namespace: str, now: float) -> float:
        """Seconds until the next one may be read."""
        return max(0.0, (self._left_over(namespace, now) - STORE) / RATE)

    def spend(self, namespace: str, size: int, now: float) -> None:
        """One of so many bytes is read."""
        self._used[namespace] = self._left_over(namespace, now) + max(size, _LEAST), now
        if len(self._used) > _KEPT:
            self._used = {one: used for one, used in self._used.items() if self._left_over(one, now) > 0}

    def _left_over(self, namespace: str, now: float) -> float:
        used, at = self._used.get(namespace, (0.0, now))
        return max(0.0, used - (now - at) * RATE)
