"""Whole numbers in text that others wrote."""

from __future__ import annotations

_LONGEST = 20  # digits; an int64 has 19, and int() refuses thousands


def is_number(text: str) -> bool:
    """Whether int(text) is a whole number of ASCII digits. str.isdigit() alone is true of superscripts as well."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST
