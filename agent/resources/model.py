"""Facts of a pod's resources on their way: what was allocated, what cgroups have, how a resize stands.

Shared by the plans that decide them, the cgroup edge's work and the checkpoints. CPU shares and
quotas as cgroup v1 counts them, times in wall seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CPU, MEMORY = "cpu", "memory"
UNLIMITED_V1 = 1 << 60  # bytes from which on v1 means "no limit": it shows the largest number of whole pages


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cgroup may use. None: left as it is; quota -1: no quota; memory 0: no limit. Quota and period in µs."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory: int | None = None
    pids: int | None = None
    hugepages: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """ResourceRequirements as the API has them: of each container by name, and of the pod as a whole.

    Either what this node has promised (allocated), or what is known to be in force (actuated).
    """

    containers: Mapping[str, Json] = field(default_factory=dict)
    whole: Json | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a running container is given. CPU in thousandths of a core, memory in bytes; 0: nothing said."""

    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0


@dataclass(frozen=True, slots=True)
class ContainerResize:
    """One running container that is to get other sizes without a restart."""

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
    """PodResizePending or PodResizeInProgress. `generation`: of the spec that it speaks of."""

    generation: int
    since: float
    probed: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ResizeState:
    """How the resize of one pod stands, as its conditions say it. None: the condition is not there."""

    pending: ResizeCondition | None = None
    progress: ResizeCondition | None = None
