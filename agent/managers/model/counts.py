"""What the CPU and topology managers measure (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Alignment = tuple[str, str]
"""Scope (container, pod) and boundary (physical_cpu, uncore_cache, numa_node)."""


@dataclass(slots=True)
class Tally:
    """Counted since the start of the agent. Pinning: containers that are to have something for themselves."""

    cpu_requests: int = 0
    cpu_errors: int = 0
    memory_requests: int = 0
    memory_errors: int = 0
    topology_requests: int = 0
    topology_errors: int = 0
    aligned: Counter[Alignment] = field(default_factory=Counter)
    unaligned: Counter[Alignment] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.cpu_requests += other.cpu_requests
        self.cpu_errors += other.cpu_errors
        self.memory_requests += other.memory_requests
        self.memory_errors += other.memory_errors
        self.topology_requests += other.topology_requests
        self.topology_errors += other.topology_errors
        self.aligned.update(other.aligned)
        self.unaligned.update(other.unaligned)


@dataclass(frozen=True, slots=True)
class ManagerCounts:
    """`shared` and `exclusive`: CPUs, None without the static policy; `per_numa`: exclusive ones by NUMA node.

    `took`: milliseconds of each admission, by the bucket that it fell into (index of TOOK_BUCKETS, last: beyond).
    """

    tally: Tally
    shared: int | None = None
    exclusive: int = 0
    per_numa: dict[int, int] = field(default_factory=dict)
    took: tuple[int, ...] = ()
    took_sum: float = 0.0


TOOK_BUCKETS = tuple(0.05 * 2**power for power in range(15))
