"""The kinds of value that a KubeletConfiguration field may have.

A check takes a decoded value and the path of its field. It returns the value in canonical form, or raises BadValue,
which names the path. Durations are Go's (time.ParseDuration).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.common.model.durations import seconds
from nodelib import quantity as quantities
from nodelib.errors import Invalid

Check = Callable[[Any, str], Any]


class BadValue(ValueError):
    """A value that its field cannot have; `path` is the field's, e.g. "authentication.webhook.enabled"."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise BadValue(path, f"must be true or false, not {_shown(value)}")
    return value


def integer(lowest: int, highest: int) -> Check:
    def check(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(path, f"must be a whole number, not {_shown(value)}")
        if not lowest <= value <= highest:
            raise BadValue(path, f"{value} is out of range ({lowest} to {highest})")
        return value

    return check


int32 = integer(-(2**31), 2**31 - 1)
int64 = integer(-(2**63), 2**63 - 1)
uint32 = integer(0, 2**32 - 1)


def number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadValue(path, f"must be a number, not {_shown(value)}")
    return float(value)


def string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise BadValue(path, f"must be a string, not {_shown(value)}{_quote_hint(value)}")
    return value


def duration(value: Any, path: str) -> str:
    text = string(value, path)
    try:
        seconds(text)
    except ValueError as error:
        raise BadValue(path, str(error)) from error
    return text


def duration_or_nanoseconds(value: Any, path: str) -> str | int:
    """logging.flushFrequency: a duration or, in its old form, whole nanoseconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(int64(value, path))
    return duration(value, path)


def quantity(value: Any, path: str) -> str:
    """resource.Quantity, which JSON may also write as a bare number."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadValue(path, f"must be a quantity such as 100m or 1Gi, not {_shown(value)}")
    try:
        quantities.parse(value)
    except Invalid as error:
        raise BadValue(path, error.message) from error
    return str(value)


def one_of(*allowed: str) -> Check:
    def check(value: Any, path: str) -> str:
        if string(value, path) not in allowed:
            raise BadValue(path, f"{value!r} is not one of {', '.join(map(repr, allowed))}")
        return str(value)

    return check


def list_of(item: Check) -> Check:
    def check(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise BadValue(path, f"must be a list, not {_shown(value)}")
        return [item(entry, f"{path}[{index}]") for index, entry in enumerate(value)]

    return check


def map_of(item: Check) -> Check:
    def check(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadValue(path, f"must be a mapping, not {_shown(value)}")
        given = {key: entry for key, entry in value.items() if entry is not None}  # null means absent
        return {string(key, path): item(entry, f"{path}.{key}") for key, entry in given.items()}

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """A mapping with exactly these fields."""
    known = {**required, **(optional or {})}

    def check(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadValue(path, f"must be a mapping, not {_shown(value)}")
        for key in value:
            if key not in known:
                raise BadValue(f"{path}.{key}", f"unknown field; known are {', '.join(sorted(known))}")
        for key in required:
            if value.get(key) is None:
                raise BadValue(f"{path}.{key}", "is required")
        return {key: known[key](entry, f"{path}.{key}") for key, entry in value.items() if entry is not None}

    return check


def _shown(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "the string", bool: "the boolean", type(None): "nothing"}
    word = kinds.get(type(value), "the number")
    if isinstance(value, (dict, list, type(None))):
        return word
    return f"{word} {value!r}"[:120]


def _quote_hint(value: Any) -> str:
    return "" if isinstance(value, (dict, list, type(None))) else "; put it in quotes"
