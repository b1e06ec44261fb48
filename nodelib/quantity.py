"""Kubernetes quantities ("100m", "1.5Gi", "2e3"): exact to a billionth, never larger than an int64.

Follows k8s.io/apimachinery/pkg/api/resource: value() and milli() round away from zero, like Quantity.Value and
MilliValue. The bounds are those that the type documents (2^63-1, one billionth). Upstream's parser does not keep them
for exponents, so an API server stores `1e3000000`; here an amount costs the same whatever its exponent, because what is
far out of range is refused before any arithmetic.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from nodelib.errors import Invalid

LARGEST = 2**63 - 1
"""No amount and no result is larger in magnitude: upstream's int64."""
MAX_LENGTH = 100
"""Characters; an int64 of billionths has 29."""
MAX_EXPONENT = 30
"""In magnitude; beyond it no amount is in range."""

_PATTERN = re.compile(
    r"([+-]?)(?:(\d+)(?:\.(\d*))?|\.(\d+))(?:(Ki|Mi|Gi|Ti|Pi|Ei)|(n|u|m|k|M|G|T|P|E)|[eE]([+-]?\d{1,20}))?", re.ASCII
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_NANO = 10**9
_ACTION = "Write a number with an optional suffix such as m, Ki, Mi, Gi, k, M, G."


def parse(text: str | int | float) -> Decimal:
    """The number, in billionths rounded away from zero, at most LARGEST in magnitude.

    Raises Invalid when `text` is not a quantity, is longer than MAX_LENGTH or has an exponent beyond MAX_EXPONENT.
    """
    match = _PATTERN.fullmatch(_checked(text))
    if match is None:
        raise Invalid(f"{text!r} is not a quantity", action=_ACTION)
    sign, whole, part, only_part, binary, decimal, exponent = match.groups()
    fraction = part or only_part or ""
    number, scale = int((whole or "") + fraction), 9 - len(fraction)
    if binary:
        number *= 1024 ** _BINARY[binary]
    elif decimal:
        scale += _DECIMAL[decimal]
    elif exponent:
        scale += _bounded(int(exponent), text)
    nano = number * 10**scale if scale >= 0 else -(-number // 10**-scale)
    nano = min(nano, LARGEST * _NANO)
    found = Decimal(nano // _NANO) if nano % _NANO == 0 else Decimal(nano).scaleb(-9)
    return -found if sign == "-" else found


def value(text: str | int | float) -> int:
    """Whole units, rounded away from zero, at most LARGEST in magnitude."""
    return whole(parse(text))


def milli(text: str | int | float) -> int:
    """Thousandths, rounded away from zero (CPU), at most a thousand times LARGEST in magnitude."""
    return _rounded(parse(text) * 1000)


def whole(amount: Decimal) -> int:
    """A sum or product of amounts as an int64: rounded away from zero, at most LARGEST in magnitude."""
    return max(-LARGEST, min(_rounded(amount), LARGEST))


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
    return f"{_rounded(amount.scaleb(9))}n"


def _rounded(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING if amount >= 0 else ROUND_FLOOR))


def _checked(text: str | int | float) -> str:
    if isinstance(text, int) and abs(text) > LARGEST:
        return str(LARGEST if text > 0 else -LARGEST)  # str() refuses an int of thousands of digits
    written = str(text)
    if len(written) > MAX_LENGTH:
        raise Invalid(
            f"{written[:MAX_LENGTH]!r} and {len(written) - MAX_LENGTH} characters more are not a quantity",
            action=_ACTION,
        )
    return written


def _bounded(exponent: int, text: object) -> int:
    if abs(exponent) > MAX_EXPONENT:
        raise Invalid(
            f"{text!r} is out of range: no quantity has an exponent beyond {MAX_EXPONENT}",
            action=f"Write an amount of at most {LARGEST}.",
        )
    return exponent
