"""Bytes as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def scaled(count: float) -> tuple[float, str]:
    """The number and its unit: the largest in which the number is at least 1."""
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    return count, _UNITS[power]


def size_of(count: float) -> str:
    """ "21 MiB", "1.4 GiB"."""
    value, unit = scaled(count)
    return f"{_short(value, unit)} {unit}"


def part_of(some: float, whole: float) -> str:
    """ "312 of 980 MiB": both in the unit of the whole."""
    value, unit = scaled(whole)
    return f"{_short(some * value / whole if whole else 0.0, unit)} of {_short(value, unit)} {unit}"


def _short(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit != "B" and 0 < value < 9.95 else f"{value:.0f}"
