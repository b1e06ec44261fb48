"""The resources of pods as values: what was allocated, what cgroups have, how a resize stands.

CPU shares and quotas as in cgroup v1, times in wall seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.json_values import Json

CPU, MEMORY = "cpu", "memory"
UNLIMITED_V1 = 1 << 60  # bytes; v1 shows "no limit" as the largest number of whole pages, which is more than this


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cgroup may use. None: not changed; quota -1: no quota; memory 0: no limit. Quota and period in µs.

    Of v2 only: `memory_min` and `memory_low` are kept for it, the second while possible; at `memory_high` allocations
    become slow, 0: nowhere.
    """

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory: int | None = None
    pids: int | None = None
    hugepages: Mapping[int, int] = field(default_factory=dict)
    memory_min: int | None = None
    memory_low: int | None = None
    memory_high: int | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """ResourceRequirements as in the API: by container name, and `whole` for the pod as a whole.

    Either what this node has promised (allocated), or what was last put in force (actuated).
    """

    containers: Mapping[str, Json] = field(default_factory=dict)
    whole: Json | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The resources of a running container. CPU in thousandths of a core, memory in bytes; 0: not set."""

    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0


@dataclass(frozen=True, slots=True)
class ContainerResize:
    """A running container that gets other sizes without a restart."""

    container_id: str
    name: str
    before: Sizes
    after: Sizes


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in use: of the pod's cgroup, and of its containers by id. None: it could not be read."""

    pod: int | None = None
    containers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResizeCondition:
    """PodResizePending or PodResizeInProgress. `generation`: of the spec that it is about."""

    generation: int
    since: float
    probed: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ResizeState:
    """The resize conditions of one pod. None: the condition is not set."""

    pending: ResizeCondition | None = None
    progress: ResizeCondition | None = None
