"""Memory of NUMA nodes and the containers it is assigned to: regular memory and huge pages by size, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One kind of memory on one NUMA node. `system`: reserved for the system; `allocatable` = `reserved` + `free`."""

    total: int
    system: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NumaState:
    """`assignments`: number of blocks assigned here; `cells`: the group of nodes, with this one, that they span."""

    assignments: int
    tables: Mapping[str, MemoryTable]
    cells: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes of one kind (memory, hugepages-2Mi, …) on these NUMA nodes together."""

    nodes: tuple[int, ...]
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The machine state by NUMA node, and `assignments` by pod UID and container name."""

    nodes: Mapping[int, NumaState] = field(default_factory=dict)
    assignments: Mapping[tuple[str, str], tuple[Block, ...]] = field(default_factory=dict)
