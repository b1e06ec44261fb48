"""What was left out of an object, in few words: an object may have a megabyte of anything. Pure."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterable

from proxy.model import Problem

_LONGEST = 60  # characters of a value
_MOST = 5  # problems of one object
_MOST_OBJECTS = 20  # of one namespace, in one report


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
    """The same for many objects: a Service may have a problem for each of its ports, and each of their addresses. And
    of one namespace only so many objects: a change of one may be a problem of thousands of others."""
    found: dict[str, dict[str, list[Problem]]] = {}
    for one in problems:
        obj = one.obj.partition(":")[0]  # a Service without the name of its port
        namespace = obj.partition(" ")[2].partition("/")[0]
        found.setdefault(namespace, {}).setdefault(obj, []).append(one)
    reported = []
    for namespace, objects in found.items():
        some = itertools.islice(objects.values(), _MOST_OBJECTS)
        reported += [one for own in some for one in limited(own)]
        if len(objects) > _MOST_OBJECTS:
            text = f"{len(objects) - _MOST_OBJECTS} more of its objects have such problems"
            reported.append(Problem(f"Namespace {namespace}", text))
    return reported
