"""Durations as people read them."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """The two largest units: "0.4 s", "75 s" as "1 min 15 s", "3 h 5 min"."""
    whole = max(0, round(seconds))
    if whole < 1:
        return f"{max(0.0, seconds):.1f} s"
    return " ".join(f"{count} {unit}" for count, unit in _largest(whole))


def roughly(seconds: float) -> str:
    """One unit, of which there are at least two: "90 s", "5 min", "3 h"."""
    size, unit = next((one for one in _UNITS if seconds >= 2 * one[0]), _UNITS[-1])
    return f"{max(1, round(seconds / size))} {unit}"


def age(seconds: float) -> str:
    """In the column AGE, as kubectl has it: "3d4h", "5m10s"."""
    return "".join(f"{count}{unit[0]}" for count, unit in _largest(max(0, int(seconds)))) or "0s"


def _largest(whole: int) -> list[tuple[int, str]]:
    found = []
    for size, unit in _UNITS:
        found.append((whole // size, unit))
        whole %= size
    first = next((at for at, (count, _) in enumerate(found) if count), len(found) - 1)
    return [one for one in found[first : first + 2] if one[0]]
