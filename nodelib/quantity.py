"""Kubernetes quantities ("100m", "1.5Gi", "2e3"), exact.

Follows k8s.io/apimachinery/pkg/api/resource: value() and milli() round away from zero, like Quantity.Value and
MilliValue.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from nodelib.errors import Invalid

_PATTERN = re.compile(
    r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:(Ki|Mi|Gi|Ti|Pi|Ei)|(n|u|m|k|M|G|T|P|E)|[eE]([+-]?\d+))?$", re.ASCII
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse(text: str | int | float) -> Decimal:
    """The exact number. Raises Invalid when `text` is not a quantity."""
    match = _PATTERN.match(str(text))
    if match is None:
        raise Invalid(
            f"{text!r} is not a quantity",
            action="Write a number with an optional suffix such as m, Ki, Mi, Gi, k, M, G.",
        )
    number, binary, decimal, exponent = match.groups()
    value = Decimal(number)
    if binary:
        return value * Decimal(1024 ** _BINARY[binary])
    if decimal:
        return value.scaleb(_DECIMAL[decimal])
    return value.scaleb(int(exponent)) if exponent else value


def value(text: str | int | float) -> int:
    """Whole units, rounded away from zero."""
    return _whole(parse(text))


def milli(text: str | int | float) -> int:
    """Thousandths, rounded away from zero (CPU)."""
    return _whole(parse(text) * 1000)


def format_milli(thousandths: int) -> str:
    """Canonical CPU text: "1500m" or "2"."""
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def format_bytes(count: int) -> str:
    """Canonical byte text: the largest binary suffix that divides it exactly."""
    if count == 0:
        return "0"
    for suffix, power in reversed(_BINARY.items()):
        if count % 1024**power == 0:
            return f"{count // 1024**power}{suffix}"
    return str(count)


def format_exact(amount: Decimal) -> str:
    """Canonical text of any amount: a binary suffix if one fits, else a decimal one; not finer than 1n."""
    if amount == amount.to_integral_value() and amount % 1024 == 0:
        return format_bytes(int(amount))
    for power, suffix in sorted({**{power: name for name, power in _DECIMAL.items()}, 0: ""}.items(), reverse=True):
        scaled = amount.scaleb(-power)
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return f"{_whole(amount.scaleb(9))}n"


def _whole(number: Decimal) -> int:
    return int(number.to_integral_value(ROUND_CEILING if number >= 0 else ROUND_FLOOR))
