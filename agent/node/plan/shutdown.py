"""In which order pods are stopped at a shutdown, and how long each group has (pkg/kubelet/nodeshutdown)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.common.model.eviction import Eviction
from agent.common.model.pods import Pod
from agent.common.plan.restart import grace_seconds

REASON = "Terminated"
MESSAGE = "Pod was terminated in response to imminent node shutdown."
NOT_READY = "node is shutting down"
_CRITICAL = 2_000_000_000  # pkg/apis/scheduling SystemCriticalPriority


@dataclass(frozen=True, slots=True)
class Period:
    """How many seconds pods have, from this priority up to that of the next period."""

    priority: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are stopped together."""

    seconds: int
    pods: tuple[Pod, ...]


def periods(by_priority: Iterable[Period], whole: float, critical: float) -> tuple[Period, ...]:
    """Lowest priority first; () when none is configured. `whole` (shutdownGracePeriod, seconds) includes `critical`."""
    found = tuple(sorted(by_priority, key=lambda one: one.priority))
    if found or whole <= 0:
        return found
    return Period(0, int(whole - critical)), Period(_CRITICAL, int(critical))


def groups(configured: tuple[Period, ...], pods: Iterable[Pod]) -> list[Group]:
    """In the order in which they stop, without empty ones. A priority below all periods belongs to the lowest."""
    found: dict[Period, list[Pod]] = {one: [] for one in configured}
    for pod in pods:
        below = [one for one in configured if one.priority <= pod.priority]
        found[below[-1] if below else configured[0]].append(pod)
    return [Group(one.seconds, tuple(members)) for one, members in found.items() if members]


def termination(pod: Pod, seconds: int) -> Eviction:
    """The pod's eviction, with its own grace period or its group's, whichever is shorter."""
    own = pod.spec.get("terminationGracePeriodSeconds")
    grace = seconds if own is None else min(grace_seconds(pod), seconds)
    return Eviction(pod, REASON, MESSAGE, grace, disrupted=True)


def total(configured: Iterable[Period]) -> int:
    """Seconds that a shutdown must wait at most."""
    return sum(one.seconds for one in configured)
