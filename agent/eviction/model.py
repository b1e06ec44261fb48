"""Facts of node pressure: what there is a limit for, what was seen, what is remembered, what is to be done.

Names of signals and conditions are the API's (pkg/kubelet/eviction/api). Amounts in bytes or pieces,
times in wall seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from agent.common.model.pods import Pod
from agent.stats.model import PodStats


@dataclass(frozen=True, slots=True)
class Share:
    """An amount, or (`percent`) a part of the whole."""

    amount: Decimal = Decimal(0)
    percent: Decimal | None = None

    def of(self, capacity: int) -> int:
        """In whole units of what there is."""
        return int(self.amount) if self.percent is None else int(capacity * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Less than `least` left is too little. `grace`: seconds that it may last; 0: a hard threshold.

    `reclaim`: how much more must be left before all is well again.
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
    """How much of something is left, and how much there is."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """What the configuration says. `transition`: seconds that a condition lasts beyond its cause; `max_grace` bounds
    a pod's own grace when a soft threshold is met; `local_storage`: limits of ephemeral storage are enforced."""

    thresholds: tuple[Threshold, ...] = ()
    transition: float = 300.0
    max_grace: int = 0
    local_storage: bool = True


@dataclass(frozen=True, slots=True)
class EvictionState:
    """What is remembered from one look to the next.

    `since`: when a threshold was first met; `pressed`: when the cause of a condition was last seen; `met`:
    thresholds whose grace is over and that are not resolved yet.
    """

    since: Mapping[Threshold, float] = field(default_factory=dict)
    pressed: Mapping[str, float] = field(default_factory=dict)
    met: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One look: the node's conditions, and the thresholds that something must be done about, most urgent first."""

    state: EvictionState
    conditions: tuple[str, ...] = ()
    due: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that could go, and what it uses; None: nothing is known of that."""

    pod: Pod
    figures: PodStats | None
