"""The drops of a node that are remembered: packets alike are one, and the oldest make room. Pure.

Bounded in both directions: whoever floods one pod, from as many ports as there are, only pushes out drops of that pod.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from policy.drops.model import Drop, Flow
from policy.model import Address, Name

MOST = 2048
_OF_ONE_POD = 64


class Drops:
    """Ordered by their last packet."""

    def __init__(self) -> None:
        self.number = 0
        self._drops: OrderedDict[Flow, Drop] = OrderedDict()
        self._of: dict[Address, OrderedDict[Flow, None]] = {}

    def __len__(self) -> int:
        return len(self._drops)

    def get(self, flow: Flow) -> Drop | None:
        return self._drops.get(flow)

    def seen(self, flow: Flow, now: float, client: Name | None, server: Name | None) -> Drop:
        """One more packet of the flow. A flow whose ends are other pods than before begins anew."""
        self.number += 1
        old = self._drops.pop(flow, None)
        if old is not None and (old.client, old.server) == (client, server):
            drop = replace(old, number=self.number, last=now, count=old.count + 1)
        else:
            drop = Drop(self.number, flow, now, now, 1, client, server)
        self._drops[flow] = drop
        mine = self._of.setdefault(flow.isolated, OrderedDict())
        mine[flow] = None
        mine.move_to_end(flow)
        if len(mine) > _OF_ONE_POD:
            self._forget(next(iter(mine)))
        elif len(self._drops) > MOST:
            self._forget(next(iter(self._drops)))
        return drop

    def explained(self, drop: Drop) -> None:
        """The same drop with what became known of it."""
        if drop.flow in self._drops:
            self._drops[drop.flow] = drop

    def since(self, number: int) -> list[Drop]:
        """Those that have changed after `number`, oldest first."""
        found = []
        for drop in reversed(self._drops.values()):
            if drop.number <= number:
                break
            found.append(drop)
        return found[::-1]

    def _forget(self, flow: Flow) -> None:
        del self._drops[flow]
        mine = self._of[flow.isolated]
        del mine[flow]
        if not mine:
            del self._of[flow.isolated]
