"""Topology hints: the NUMA nodes that the CPU, memory and device managers could allocate from.

A mask has bit N set for NUMA node N, as pkg/kubelet/cm/topologymanager/bitmask has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

Mask = int


@dataclass(frozen=True, slots=True)
class Hint:
    """`affinity` None: any node."""

    affinity: Mask | None
    preferred: bool


ANYWHERE = Hint(None, False)
Hints = Mapping[str, tuple[Hint, ...]]
"""By resource. An empty tuple: the resource cannot be allocated; resources that are not named have no preference."""


def mask_of(nodes: Iterable[int]) -> Mask:
    """The mask with the bits of these nodes."""
    found = 0
    for node in nodes:
        found |= 1 << node
    return found


@lru_cache(maxsize=1024)
def nodes_of(mask: Mask) -> tuple[int, ...]:
    """The nodes of the mask, in order."""
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def masks(nodes: Iterable[int]) -> tuple[Mask, ...]:
    """Every combination of these nodes, small ones first."""
    return _masks(tuple(sorted(nodes)))


@lru_cache(maxsize=16)
def _masks(nodes: tuple[int, ...]) -> tuple[Mask, ...]:
    sizes = range(1, len(nodes) + 1)
    return tuple(mask_of(combo) for size in sizes for combo in combinations(nodes, size))


def sum_on(mask: Mask, by_node: Mapping[int, int]) -> int:
    """The sum of `by_node` over the nodes of the mask."""
    return sum(by_node.get(node, 0) for node in nodes_of(mask))


def width(mask: Mask) -> tuple[int, int]:
    """Sort key: masks with fewer nodes are narrower, among equals the one with the lower numbers."""
    return mask.bit_count(), mask
