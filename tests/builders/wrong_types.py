"""Objects as no API server gives them: each of their values in turn replaced by one of another type."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from nodelib.json_values import Json

HOSTILE = "\x1b[31m\n  do: run `x`; $(touch /tmp/x)"
WRONG: tuple[Any, ...] = (None, 5, -1, True, HOSTILE, "", [], [5], ["x"], [{}], {}, {"a": 1}, 1e300, [[[]]], 1 << 200)


def mutants(found: Json) -> Iterator[Json]:
    """The object with one value replaced, for each value and each of WRONG."""
    for path in _paths(found, ()):
        for wrong in WRONG:
            made = copy.deepcopy(found)
            place: Any = made
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
            yield made


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _paths(one, (*path, key))
