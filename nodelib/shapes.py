"""What a document of others must look like to be read: values of another type are left out, as if nobody had sent them.

A shape is a type, a regular expression for a text, a list with the shape of its items, a dict with the shapes of the
keys that are read, or a tuple of those that will do. A key that ends in "!" must be there (a list or an object with
something in it), or the whole object is left out; the key "*" stands for all others. What no shape names stays.
"""

from __future__ import annotations

import math
import re
from typing import Any

NUMBER = float  # also an integer; finite, and small enough to be a time in seconds
_LARGEST = 1e11
_MOST_INT = 1 << 63
_OUT = object()  # what is left out
Shape = Any


def shaped(value: object, shape: Shape) -> Any:
    """`value` as far as it has the shape; None if it is nothing of the kind."""
    found = _shaped(value, shape)
    return None if found is _OUT else found


def _shaped(value: object, shape: Shape) -> Any:
    if isinstance(shape, dict):
        return _object(value, shape) if isinstance(value, dict) else _OUT
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _OUT
        return [one for item in value if (one := _shaped(item, shape[0])) is not _OUT]
    if isinstance(shape, tuple):
        return next((found for one in shape if (found := _shaped(value, one)) is not _OUT), _OUT)
    return value if _is(value, shape) else _OUT


def _is(value: object, shape: Shape) -> bool:
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if shape is NUMBER:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and math.isfinite(value) and abs(value) <= _LARGEST  # type: ignore[arg-type]
    if shape is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_INT
    return isinstance(value, shape)


def _object(value: dict[Any, Any], shape: dict[str, Shape]) -> Any:
    found: dict[Any, Any] = {}
    for key, inner in value.items():
        own = shape.get(key, shape.get(f"{key}!", shape.get("*", _OUT)))
        part = inner if own is _OUT else _shaped(inner, own)
        if part is not _OUT:
            found[key] = part
    lacks = any(name.endswith("!") and found.get(name[:-1]) in (None, [], {}) for name in shape)
    return _OUT if lacks else found
