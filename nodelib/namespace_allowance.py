"""How much each namespace may have done for it again and again. Pure: it is told the time.

Something large once is no harm; whoever writes it every second would keep all others waiting. So a namespace has a
store of bytes, and when it is used up waits until it has grown again.
"""

from __future__ import annotations


class NamespaceAllowance:
    """Of each namespace, what it has used and not got back yet. `store`: bytes at once, of which one object may use up
    more than there is; `rate`: bytes a second (> 0); `kept`: namespaces that have used nothing of theirs."""

    def __init__(self, store: int, rate: int, kept: int) -> None:
        self._store, self._rate, self._kept = store, rate, kept
        self._used: dict[str, tuple[float, float]] = {}  # bytes, and when that was

    def wait(self, namespace: str, now: float) -> float:
        """Seconds until the next one may be done."""
        return max(0.0, (self._left_over(namespace, now) - self._store) / self._rate)

    def spend(self, namespace: str, size: int, now: float) -> None:
        """One of so many bytes is done."""
        self._used[namespace] = self._left_over(namespace, now) + size, now
        if len(self._used) > self._kept:
            self._used = {one: used for one, used in self._used.items() if self._left_over(one, now) > 0}

    def _left_over(self, namespace: str, now: float) -> float:
        used, at = self._used.get(namespace, (0.0, now))
        return max(0.0, used - (now - at) * self._rate)
