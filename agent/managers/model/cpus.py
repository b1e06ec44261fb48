"""The CPUs of a machine and the NUMA nodes they belong to; sets of CPUs as the kernel writes them ("0-3,8")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from nodelib.errors import Invalid

Cpus = frozenset[int]
NO_CPUS: Cpus = frozenset()
_MOST = 1 << 16  # CPUs in one range: a typing error must not use up the memory of the machine


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU. `core`: the lowest CPU of its siblings; `uncore`: the last-level cache that it shares."""

    id: int
    core: int
    socket: int
    numa: int
    uncore: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """`memory` in bytes; `hugepages`: page size -> bytes of all its pages; `distances`: to each node, by id."""

    id: int
    memory: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class CpuTopology:
    """Which CPUs share a core, a cache, a NUMA node or a socket. `nodes`: all NUMA nodes, also those without CPUs."""

    cpus: tuple[Cpu, ...]
    nodes: tuple[NumaNode, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[int, Cpu]:
        return {one.id: one for one in self.cpus}

    @cached_property
    def all(self) -> Cpus:
        return frozenset(self.by_id)

    @cached_property
    def sockets(self) -> Mapping[int, Cpus]:
        return self.grouped(self.all, "socket")

    @cached_property
    def numas(self) -> Mapping[int, Cpus]:
        return self.grouped(self.all, "numa")

    @cached_property
    def cores(self) -> Mapping[int, Cpus]:
        return self.grouped(self.all, "core")

    @cached_property
    def uncores(self) -> Mapping[int, Cpus]:
        return self.grouped(self.all, "uncore")

    @property
    def per_core(self) -> int:
        return len(self.cpus) // len(self.cores) if self.cores else 0

    @property
    def per_socket(self) -> int:
        return len(self.cpus) // len(self.sockets) if self.sockets else 0

    @property
    def per_uncore(self) -> int:
        return len(self.cpus) // len(self.uncores) if self.uncores else 0

    def grouped(self, cpus: Iterable[int], level: str) -> dict[int, Cpus]:
        """These CPUs by the number of their core, uncore, numa or socket (`level`)."""
        found: dict[int, set[int]] = {}
        for cpu in cpus:
            found.setdefault(getattr(self.by_id[cpu], level), set()).add(cpu)
        return {key: frozenset(group) for key, group in found.items()}

    def sockets_of(self, numas: Iterable[int]) -> frozenset[int]:
        """The sockets that have CPUs in these NUMA nodes."""
        wanted = set(numas)
        return frozenset(one.socket for one in self.cpus if one.numa in wanted)

    def siblings(self, cpus: Iterable[int]) -> Cpus:
        """These and all others on the same cores."""
        return frozenset(other for cpu in cpus for other in self.cores[self.by_id[cpu].core])


def parse_cpus(text: str) -> Cpus:
    """cpuset(7), list format. Raises Invalid."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else []:
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last) if dash else int(first)
        except ValueError as error:
            raise Invalid(f"{part!r} is neither a CPU nor a range of CPUs") from error
        if not 0 <= low <= high or high - low >= _MOST:
            raise Invalid(f"{part!r} is not a range of CPUs")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpus(cpus: Iterable[int]) -> str:
    """The list format, in order: "0-3,8"."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = runs[-1][0], cpu
        else:
            runs.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
