"""What sets of pods cost a node beside the rules that use them: it grows with the pods of the cluster. Pure.

Each pod is asked whether a selector fits, and each that does is an element, which is made anew for every change of the
set and sent to the kernel. A policy of 600 KiB has room for thousands of selectors that fit all pods: in a cluster of a
thousand these took the daemon half a minute, and eight seconds for each pod that came or went.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy.model import Selection
from policy.plan.entries import OfPods, requirements
from policy.plan.index import Index

# In the units of `entries.py`.
_ASKED = 32  # pods that are asked for one unit, with four requirements at most
_MEMBERS = 4


def price(parties: Iterable[OfPods], index: Index, room: int) -> int:
    """Of these sets together; whatever is more than `room` is not worked out."""
    chosen = list(parties)
    found = sum(_asking(one, index) for one in chosen)
    for one in chosen:
        if found > room:
            break
        found += _members(one, index) // _MEMBERS
    return found


def _asking(one: OfPods, index: Index) -> int:
    if isinstance(one, Selection):
        # Of its own namespace it asks the pods that are there: whoever has many of them pays for each elsewhere.
        return 0 if one.namespace else index.size * (1 + requirements(one) // 4) // _ASKED
    return index.size * len(one.ports) // _ASKED


def _members(one: OfPods, index: Index) -> int:
    if isinstance(one, Selection):
        return len(index.members(one))
    return sum(len(index.having(port)) for port in one.ports)
