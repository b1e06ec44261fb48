"""What was left out of an object, in few words: an object may have a megabyte of anything. Pure."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from proxy.model import Problem

_LONGEST = 60  # characters of a value
_MOST = 5  # problems of one object


def shown(value: object) -> str:
    """`value` as Python writes it, shortened."""
    short = reprlib.Repr()  # it cuts before it writes: the representation of a megabyte is a megabyte
    short.maxstring = short.maxother = _LONGEST
    text = short.repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def limited(problems: list[Problem]) -> list[Problem]:
    """The first problems of one object, and how many more there are."""
    if len(problems) <= _MOST:
        return problems
    more = Problem(problems[0].obj, f"{len(problems) - _MOST} more like these")
    return [*problems[:_MOST], more]


def limited_each(problems: Iterable[Problem]) -> list[Problem]:
    """The same for many objects: a Service may have a problem for each of its ports, and each of their addresses."""
    found: dict[str, list[Problem]] = {}
    for one in problems:
        found.setdefault(one.obj.partition(":")[0], []).append(one)  # a Service without the name of its port
    return [one for own in found.values() for one in limited(own)]
