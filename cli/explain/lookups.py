"""Looks things up among many objects: each index, and what is worked out from all of them, is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from nodelib.json_values import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lookups:
    """What a collection of objects is asked for again and again: a cluster has too many to go through all each time."""

    _indexes: dict[object, dict[object, list[Json]]] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )
    _once: dict[object, object] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def once(self, what: object, make: Callable[[], T]) -> T:
        """What is worked out from many objects, when somebody asks for the first time."""
        if what not in self._once:
            self._once[what] = make()
        return self._once[what]  # type: ignore[return-value]  # kept by what it is

    def _found(
        self, what: object, objects: Iterable[Json], keys: Callable[[Json], Iterable[object]], wanted: object
    ) -> list[Json]:
        """Those of `objects` that have `wanted` among their `keys`; `what` names these."""
        index = self._indexes.get(what)
        if index is None:
            index = self._indexes[what] = {}
            for one in objects:
                for own in keys(one):
                    index.setdefault(own, []).append(one)
        return index.get(wanted, [])
