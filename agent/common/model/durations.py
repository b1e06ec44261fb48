"""Go durations (time.ParseDuration)."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST = Decimal(2**63) / 10**9  # a Go duration is an int64 of nanoseconds


def seconds(text: str) -> float:
    """Seconds of a Go duration ("1h30m", "300ms", "0"). Raises ValueError."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, end = Decimal(0), 0
    for part in _PART.finditer(rest):
        if part.start() != end:
            break
        total += Decimal(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not rest or end != len(rest) or total >= _LONGEST:
        raise ValueError(f"{text!r} is not a duration; write it like 300ms, 10s, 2h45m")
    return float(sign * total)
