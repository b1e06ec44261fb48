"""Which nodes are alive, by Leases that change. Pure: the time is an argument, of a clock that nobody sets.

As upstream's leader election does, times inside Leases are not believed: a node lives as long as its Lease keeps
changing. Who looks must be well, too: this daemon's own Lease comes back over the same watch as those of the others, so
that when it does not, nothing is known of anybody. Whoever has not been heard of since then gets the whole time again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass


@dataclass(slots=True)
class _Seen:
    token: str
    at: float
    changed: bool = False  # since it was seen first; a Lease that never changes may be years old


class Liveness:
    """`duration`: seconds after which a Lease that has not changed is that of a dead node."""

    def __init__(self, own: str, duration: float) -> None:
        self._own, self._duration = own, duration
        self._seen: dict[str, _Seen] = {}
        self._own_at = self._since = float("-inf")

    def observe(self, name: str, token: str, now: float) -> None:
        """A Lease as the watch brought it; `token` is another one after each renewal."""
        seen = self._seen.get(name)
        if seen is not None and seen.token == token:
            return
        self._seen[name] = _Seen(token, now, seen is not None)
        if name == self._own:
            if now - self._own_at > self._duration:
                self._since = now
            self._own_at = now

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def start_over(self, duration: float, now: float) -> None:
        """From now on Leases are renewed more often, or less; what was seen before says little."""
        self._duration, self._since = duration, now
        for seen in self._seen.values():
            seen.changed = False

    def fresh(self, now: float) -> bool:
        """Whether this daemon sees what goes on."""
        return now - self._own_at <= self._duration

    def sure(self, now: float) -> bool:
        """Whether it has seen it for long enough to call others dead."""
        return self.fresh(now) and now - self._since > self._duration

    def expired(self, name: str, now: float) -> bool:
        """Whether it is certain that a Lease is not renewed any more, or that there is none."""
        seen = self._seen.get(name)
        if not self.fresh(now):
            return False
        return seen is None or now - max(seen.at, self._since) > self._duration

    def live(self, now: float, among: Set[str] | None = None) -> frozenset[str]:
        """Those that have renewed their Lease before our eyes, and not too long ago."""
        return frozenset(
            name
            for name, seen in self._seen.items()
            if seen.changed and now - seen.at <= self._duration and (among is None or name in among)
        )
