"""Which of very many changes are taken first. Pure.

Whoever may write Services or EndpointSlices in one namespace can change very much, again and again, and must keep
nobody else's rules waiting for it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from proxy.model import NamespacedName

# Pairs of endpoints and ports whose change is taken at once, a second of work for some modes: whoever has five Services
# with 10,000 ports each had the rules of all others wait for ten, by their endpoints or by their ports.
MOST_AT_ONCE = 10_000
_FEW = 100  # of a Service that does not wait

Names = Set[NamespacedName]


class Turns:
    """In memory only; not thread-safe. `most`: pairs at once, where that is less than in any mode."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        # Namespaces that wait, whoever had the last turn last.
        self._namespaces: dict[str, None] = {}

    @property
    def at_once(self) -> int:
        """Pairs whose change is taken in one sync."""
        return min(self._most, MOST_AT_ONCE)

    def chosen(
        self,
        sizes: Mapping[NamespacedName, int],
        queues: Sequence[Iterable[NamespacedName]],
        before: Mapping[NamespacedName, Names],
    ) -> set[NamespacedName]:
        """Those of a namespace that wait for longest, whatever they have, and of each namespace those that have little.

        Namespaces take turns at both. `sizes`: of all that wait. `queues`: the same, in the order in which they came.
        `before`: whom a Service has to have taken with it.
        """
        sizes = {**sizes, **{one: sizes[one] + sum([sizes[each] for each in some]) for one, some in before.items()}}
        found = self._longest(queues, before)
        left = max(self.at_once - sum([sizes[one] for one in found]), self.at_once // 2)
        totals: Counter[str] = Counter()  # by namespace, of this Service and those that have less
        turns: dict[NamespacedName, int] = {}
        for one in sorted(sizes.keys() - found, key=lambda one: (sizes[one], one)):
            totals[one.namespace] += sizes[one]
            turns[one] = totals[one.namespace]
        for one in sorted(turns, key=lambda one: turns[one]):
            if sizes[one] <= max(left, _FEW if left > -self.at_once else 0) or turns[one] <= _FEW:
                left -= sizes[one]
                found.add(one)
                found |= before.get(one, set())
        waiting = {one.namespace for one in sizes.keys() - found}
        self._namespaces = {name: None for name in self._namespaces if name in waiting}
        return found

    def _longest(
        self, queues: Sequence[Iterable[NamespacedName]], before: Mapping[NamespacedName, Names]
    ) -> set[NamespacedName]:
        """The first in each queue of the namespace whose turn it is."""
        waiting = dict.fromkeys([one.namespace for queue in queues for one in queue])
        name, *others = dict.fromkeys([*[one for one in self._namespaces if one in waiting], *waiting])
        self._namespaces = dict.fromkeys([*others, name])
        found: set[NamespacedName] = set()
        for queue in queues:
            first = next((one for one in queue if one.namespace == name), None)
            if first is not None:
                some = before.get(first, set())
                found |= {*sorted(some)[:1], *([first] if len(some) < 2 else [])}  # one after the other
        return found
