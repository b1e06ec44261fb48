"""What the CPU, memory and topology managers count for their metrics (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Alignment = tuple[str, str]
"""Scope (container, pod) and boundary (physical_cpu, uncore_cache, numa_node)."""


@dataclass(slots=True)
class AdmissionCounts:
    """Counted since the start of the agent. The requests: containers that should get exclusive CPUs or NUMA memory."""

    cpu_requests: int = 0
    cpu_errors: int = 0
    memory_requests: int = 0
    memory_errors: int = 0
    topology_requests: int = 0
    topology_errors: int = 0
    aligned: Counter[Alignment] = field(default_factory=Counter)
    unaligned: Counter[Alignment] = field(default_factory=Counter)

    def add(self, other: AdmissionCounts) -> None:
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
    """`shared`: CPUs in the shared pool, None without the static policy; `exclusive`: allocated CPUs, also `per_numa`.

    `durations`: number of admissions by duration (index of DURATION_BUCKETS, the last one for all that took longer);
    `duration_sum` in milliseconds.
    """

    admissions: AdmissionCounts
    shared: int | None = None
    exclusive: int = 0
    per_numa: dict[int, int] = field(default_factory=dict)
    durations: tuple[int, ...] = ()
    duration_sum: float = 0.0


DURATION_BUCKETS = tuple(0.05 * 2**power for power in range(15))  # milliseconds
