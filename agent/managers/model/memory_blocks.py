"""Memory of NUMA nodes and who has it: regular memory and huge pages of each size, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One kind of memory on one NUMA node. `system` is kept back; `allocatable` is `reserved` (given) and `free`."""

    total: int
    system: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NumaState:
    """`cells`: the nodes that this one gives memory together with (itself among them), by `assignments` blocks."""

    assignments: int
    tables: Mapping[str, MemoryTable]
    cells: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes of one kind (memory, hugepages-2Mi, …) on these nodes together."""

    nodes: tuple[int, ...]
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class MemoryState:
    """`held` by pod UID and container name."""

    nodes: Mapping[int, NumaState] = field(default_factory=dict)
    held: Mapping[tuple[str, str], tuple[Block, ...]] = field(default_factory=dict)
