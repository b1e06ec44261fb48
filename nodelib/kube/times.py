"""metav1.Time and MicroTime: RFC 3339 text to and from seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,30})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FIRST, _LAST = -62135596800.0, 253402300799.0  # the years 1 and 9999


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch. Raises ValueError on anything that is not RFC 3339, leap seconds as in Go."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError(f"{str(text)[:60]!r} is not a time such as 2026-01-02T03:04:05Z")
    return datetime.fromisoformat(text.upper()).timestamp()


def time_or(default: float, text: object) -> float:
    """The same, or `default` for anything that is no time: for orders, metrics and conditions, which must not fail."""
    try:
        return parse_rfc3339(text)  # type: ignore[arg-type]  # it refuses what is no text
    except ValueError:
        return default


def time_or_none(text: object) -> float | None:
    """The same, or None."""
    try:
        return parse_rfc3339(text)  # type: ignore[arg-type]  # it refuses what is no text
    except ValueError:
        return None


def format_rfc3339(seconds: float) -> str:
    """metav1.Time: whole seconds, UTC. What is outside the years 1 to 9999 becomes their first or last second."""
    return f"{datetime.fromtimestamp(int(_bounded(seconds)), UTC):%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def format_micro(seconds: float) -> str:
    """metav1.MicroTime, as Leases carry it."""
    return f"{datetime.fromtimestamp(_bounded(seconds), UTC):%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")


def _bounded(seconds: float) -> float:
    return max(_FIRST, min(seconds, _LAST)) if seconds == seconds else _FIRST
