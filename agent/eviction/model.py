"""Thresholds, what was observed, the state between two rounds, and the outcome of one.

Names of signals and conditions are the API's (pkg/kubelet/eviction/api). Amounts in bytes or pieces, times in wall
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from agent.common.model.pods import Pod
from agent.stats.model import PodStats


@dataclass(frozen=True, slots=True)
class Share:
    """An amount, or a percentage of the capacity."""

    amount: Decimal = Decimal(0)
    percent: Decimal | None = None

    def of(self, capacity: int) -> int:
        """The amount, in whole units, for this capacity."""
        return int(self.amount) if self.percent is None else int(capacity * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Met when less than `least` is available. `grace`: seconds that this may last; 0: a hard threshold.

    `reclaim`: how much more must be available before a threshold that was acted on is resolved.
    """

    signal: str
    least: Share
    grace: float = 0.0
    reclaim: Share | None = None

    @property
    def hard(self) -> bool:
        return self.grace == 0


@dataclass(frozen=True, slots=True)
class Observation:
    """How much of a signal's resource is available, of how much."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """The configuration. `transition`: seconds that a condition lasts beyond its cause; `max_grace` bounds a pod's own
    grace period when a soft threshold is met; `local_storage`: limits of ephemeral storage are enforced."""

    thresholds: tuple[Threshold, ...] = ()
    transition: float = 300.0
    max_grace: int = 0
    local_storage: bool = True


@dataclass(frozen=True, slots=True)
class EvictionState:
    """What is kept from one round to the next.

    `since`: when a threshold was first met; `observed`: when the cause of a condition was last observed; `met`:
    thresholds whose grace period is over and that are not resolved yet.
    """

    since: Mapping[Threshold, float] = field(default_factory=dict)
    observed: Mapping[str, float] = field(default_factory=dict)
    met: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the node's conditions, and the thresholds that must be acted on, most urgent first."""

    state: EvictionState
    conditions: tuple[str, ...] = ()
    due: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A threshold beside what the last round observed. Met below `least`; `since`: for how long, in wall seconds; 0 if
    it is not met. `capacity` 0: the signal could not be observed."""

    signal: str
    available: int
    capacity: int
    least: int
    grace: float
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that was evicted, and when."""

    namespace: str
    name: str
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """What the last round saw (`at` 0: there was none yet), and the newest evictions of this agent, oldest first."""

    at: float = 0.0
    levels: tuple[Level, ...] = ()
    conditions: tuple[str, ...] = ()
    evicted: tuple[Evicted, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """How much a pod may write, in bytes: into each emptyDir, all of it together, each of its containers."""

    volumes: Mapping[str, Decimal] = field(default_factory=dict)
    total: Decimal | None = None
    containers: Mapping[str, Decimal] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.volumes or self.total or self.containers)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that could be evicted, and what it uses; None: not known."""

    pod: Pod
    usage: PodStats | None
