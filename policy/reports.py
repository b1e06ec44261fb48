"""What is said about policies of others: so seldom that writing policies fills no logs and no API server."""

from __future__ import annotations

from collections.abc import Sequence

from policy.model import Name, Problem

MOST_REPORTS = 30  # within a pause, of all policies together
_PAUSE = 60.0  # seconds between two reports about one policy
_SHOWN = 3


class Reports:
    """Decides what is reported. Times are those of a monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[Name, float] = {}

    @property
    def size(self) -> int:
        """How many policies are remembered."""
        return len(self._last)

    def about_policy(self, name: Name, problems: Sequence[Problem], now: float) -> str:
        """One text about all that was left out of a policy, "" when it has been reported, or too much has."""
        if not problems:
            return ""
        self._last = {one: then for one, then in self._last.items() if now - then < _PAUSE}
        if name in self._last or len(self._last) >= MOST_REPORTS:
            return ""
        self._last[name] = now
        text = "; ".join(one.message[:160] for one in problems[:_SHOWN])
        return text + (f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else "")
