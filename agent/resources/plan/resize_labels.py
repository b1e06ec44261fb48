"""The labels under which resizes are counted (pkg/kubelet/kubelet.go, allocation and metrics; KEP-1287)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from agent.common.model.pods import Pod
from agent.resources.model import CPU, MEMORY, ResizeState
from agent.resources.plan.allocation import allocation_of
from nodelib.json_values import Json
from nodelib.quantity import parse

_SYSTEM_CRITICAL, _HIGH, _LOW = 2_000_000_000, 100_000, -1000


class Trigger(StrEnum):
    """Why pending resizes are tried again."""

    UPDATED = "pod_updated"
    ADDED = "pods_added"
    REMOVED = "pods_removed"
    TERMINATED = "pod_terminated"
    RESIZED = "pod_resized"
    PERIODIC = "periodic_retry"


class Resolution(StrEnum):
    """How a resize that was deferred has ended."""

    ACCEPTED = "accepted"
    REVERTED = "reverted"
    TERMINATED = "terminated"


def operations(before: Pod, now: Pod) -> Iterator[tuple[str, str, str]]:
    """(resource, requirement, operation) of each amount of a container that is asked for differently now."""
    old, new = allocation_of(before).containers, allocation_of(now).containers
    for name in new.keys() & old.keys():
        for resource in (MEMORY, CPU):
            for side in ("requests", "limits"):
                found = _operation(old[name], new[name], side, resource)
                if found:
                    yield resource, side, found


def priority_bucket(pod: Pod) -> str:
    priority = int(pod.spec.get("priority") or 0)
    if priority >= _SYSTEM_CRITICAL:
        return "system-critical"
    if priority >= _HIGH:
        return "high"
    if priority > 0:
        return "medium"
    if priority == 0:
        return "normal"
    return "low" if priority > _LOW else "very-low"


def counted(resizes: Iterable[tuple[Pod, ResizeState]]) -> tuple[Mapping[tuple[str, str], int], int]:
    """How many are pending, by (reason, priority bucket), and how many are under way."""
    every = list(resizes)
    pending = Counter(
        (state.pending.reason.lower(), priority_bucket(pod)) for pod, state in every if state.pending is not None
    )
    return pending, sum(state.progress is not None for _, state in every)


def _operation(old: Json, new: Json, side: str, resource: str) -> str:
    before, after = (parse((one.get(side) or {}).get(resource, 0)) for one in (old, new))
    if before == after:
        return ""
    if not after:
        return "remove"
    if not before:
        return "add"
    return "increase" if after > before else "decrease"
