"""NUMA nodes on which something could be given: what the CPU, memory and device managers tell the topology manager.

A mask has bit N set for NUMA node N, as pkg/kubelet/cm/topologymanager/bitmask has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

Mask = int


@dataclass(frozen=True, slots=True)
class Hint:
    """`affinity` None: any node will do."""

    affinity: Mask | None
    preferred: bool


ANYWHERE = Hint(None, False)
Hints = Mapping[str, tuple[Hint, ...]]
"""By resource. A resource without any hint cannot be given; what is not named has no preference."""


def mask_of(nodes: Iterable[int]) -> Mask:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found


def nodes_of(mask: Mask) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def masks(nodes: Iterable[int]) -> Iterator[Mask]:
    """Every combination of these nodes, the smaller ones first."""
    ordered = sorted(nodes)
    for size in range(1, len(ordered) + 1):
        for combo in combinations(ordered, size):
            yield mask_of(combo)


def width(mask: Mask) -> tuple[int, int]:
    """What is less is narrower: fewer nodes, or as many with lower numbers."""
    return mask.bit_count(), mask
