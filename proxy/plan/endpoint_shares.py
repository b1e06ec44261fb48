"""How many endpoints the Services of a namespace may have together. Pure.

Every proxy of the cluster keeps them, once for each port, and each takes hundreds of bytes. Whoever may write
EndpointSlices in one namespace, or has many pods there, must not use up the memory of all nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from nodelib.text import first_of
from proxy.model import NamespacedName, Problem
from proxy.plan.slices import MOST_OF_SERVICE

# Pairs of endpoints and ports: three ports of each pod of the largest cluster that Kubernetes supports have fewer.
MOST_OF_NAMESPACE = 500_000
_SHOWN = 3  # Services in one line of the log


@dataclass(slots=True)
class _Namespace:
    """What its Services have, and for how much there is room of those that have to have less."""

    pairs: dict[NamespacedName, int] = field(default_factory=dict)
    total: int = 0
    rooms: dict[NamespacedName, int] = field(default_factory=dict)

    def shared(self, most: int, of_service: int) -> dict[NamespacedName, int]:
        """Those that have little come first, and the same ones on every node."""
        left, rooms = most, {}
        if self.total > left:
            for service, pairs in sorted(self.pairs.items(), key=lambda one: (one[1], one[0])):
                used = min(pairs, of_service)
                if used > left:
                    rooms[service] = left
                left = max(0, left - used)
        return rooms


class EndpointShares:
    """In memory only; not thread-safe. `most`, `most_of_service`: pairs of a namespace, and of a Service, where that is
    less than in any mode."""

    def __init__(self, most: int = sys.maxsize, most_of_service: int = sys.maxsize) -> None:
        self._most, self._most_of_service = most, most_of_service
        self._namespaces: dict[str, _Namespace] = {}

    @property
    def _of_namespace(self) -> int:
        return min(self._most, MOST_OF_NAMESPACE)

    @property
    def _of_service(self) -> int:
        return min(self._most_of_service, MOST_OF_SERVICE)

    def add(self, service: NamespacedName, pairs: int) -> bool:
        """The Service has so many more in its slices, or fewer. Whether there is room for all of its namespace."""
        space = self._namespaces.setdefault(service.namespace, _Namespace())
        before = space.pairs.pop(service, 0)
        space.total += min(before + pairs, self._of_service) - min(before, self._of_service)
        if before + pairs:
            space.pairs[service] = before + pairs
        return space.total <= self._of_namespace

    def bound(self, namespaces: Iterable[str]) -> tuple[set[NamespacedName], list[Problem]]:
        """Share out anew what namespaces have that have changed. Returns who has more room now, or less."""
        found: set[NamespacedName] = set()
        problems: list[Problem] = []
        for name in namespaces:
            space = self._namespaces.get(name)
            if space is None:
                continue
            before, space.rooms = space.rooms, space.shared(self._of_namespace, self._of_service)
            if not space.pairs:
                del self._namespaces[name]
            found |= {one for one in before.keys() | space.rooms.keys() if before.get(one) != space.rooms.get(one)}
            if space.rooms and space.rooms.keys() != before.keys():
                which = first_of(sorted(one.name for one in space.rooms), _SHOWN)
                text = f"endpoints are left out of {which}: its Services have more than {self._of_namespace} together"
                problems.append(Problem(f"Namespace {name}", text))
        return found, problems

    def room(self, service: NamespacedName) -> int:
        """For how many pairs of the Service there is room."""
        space = self._namespaces.get(service.namespace)
        most = self._of_service
        return min(most, space.rooms.get(service, most) if space else most)
