"""metav1.Time and MicroTime: RFC 3339 text to and from seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch. Raises ValueError on anything that is not RFC 3339."""
    return datetime.fromisoformat(text).timestamp()


def format_rfc3339(seconds: float) -> str:
    """metav1.Time: whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(seconds: float) -> str:
    """metav1.MicroTime, as Leases carry it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
