"""Memory that cgroup v2 keeps for pods, and where it slows them down before they reach their limit (KEP-2570).

Follows kuberuntime_container_linux.go and pkg/kubelet/cm (helpers_linux.go, qos_container_manager_linux.go) with the
gate MemoryQoS. Without `memoryThrottlingFactor` and with `memoryReservationPolicy: None`, the defaults, nothing is kept
and nobody is slowed down. Differs from upstream in one thing: a container or pod without a threshold gets "max" in
writing, so that a resize that ends it is in force at once. Bytes.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from agent.common.model.binding import config, gate
from agent.common.model.pods import Pod
from agent.common.plan import demand
from agent.common.plan.demand import Amounts, Qos
from agent.resources.model import Limits
from nodelib.json_values import Json
from nodelib.quantity import whole

TIERED = "TieredReservation"
_UNLIMITED = 0
_MEMORY = (demand.MEMORY,)


def _reserves(policy: str) -> bool:
    return policy == TIERED


@dataclass(frozen=True, slots=True)
class MemoryQos:
    """`throttling`: where between request and limit allocations become slow, 0 to 1; None: nowhere.

    `reserves`: what pods request is kept for them: of Guaranteed pods in any case, of Burstable ones while it can be.
    """

    on: Annotated[bool, gate("MemoryQoS")] = True
    throttling: Annotated[float | None, config("memoryThrottlingFactor")] = None
    reserves: Annotated[bool, config("memoryReservationPolicy", convert=_reserves)] = False

    @property
    def keeps(self) -> bool:
        """Whether pods' memory is kept at all."""
        return self.on and self.reserves


def container_files(pod: Pod, container: Json, policy: MemoryQos, allocatable: int) -> dict[str, str]:
    """CRI LinuxContainerResources.unified. `allocatable`: of the node, the limit of containers without one."""
    high = _container_threshold(pod, container, policy, allocatable) if policy.on else _UNLIMITED
    found = {"memory.high": str(high or "max")}
    if not policy.on:
        return found
    asked = _bytes(demand.container_amounts(container, "requests"))
    kept = asked if policy.keeps else 0
    if kept and demand.qos_class(pod) is Qos.GUARANTEED:
        return {**found, "memory.min": str(kept)}
    if kept:
        return {**found, "memory.low": str(kept)}
    return {**found, "memory.min": "0", "memory.low": "0"}


def with_pod(limits: Limits, pod: Pod, policy: MemoryQos) -> Limits:
    """The limits of the pod's cgroup, with what is kept for it and where it is slowed down as a whole."""
    if not policy.on:
        return limits
    asked, most = _bytes(demand.pod_requests(pod, only=_MEMORY)), _bytes(demand.pod_limits(pod, only=_MEMORY))
    guaranteed = demand.qos_class(pod) is Qos.GUARANTEED
    whole = demand.pod_level(pod, "limits") or demand.pod_level(pod, "requests")
    high = _threshold(asked, most, policy.throttling) if whole and limits.memory is not None else _UNLIMITED
    return replace(
        limits,
        memory_min=asked if policy.reserves and guaranteed else None,
        memory_low=asked if policy.reserves and not guaranteed else None,
        memory_high=None if policy.throttling is None else high,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """What pods of a class request together. The cgroup of all pods must keep it, too, or the kernel does not."""

    guaranteed: int = 0
    burstable: int = 0


def kept(pods: Iterable[Pod], policy: MemoryQos) -> Kept:
    """Of all pods that are not BestEffort."""
    if not policy.keeps:
        return Kept()
    sums = dict.fromkeys(Qos, 0)
    for pod in pods:
        sums[demand.qos_class(pod)] += _bytes(demand.pod_requests(pod, only=_MEMORY))
    return Kept(sums[Qos.GUARANTEED], sums[Qos.BURSTABLE])


def of_reservation(limits: Limits, policy: MemoryQos) -> Limits:
    """The limits of a system cgroup that enforceNodeAllocatable names: its memory is kept for it."""
    return replace(limits, memory_min=limits.memory) if policy.on and limits.memory else limits


def _container_threshold(pod: Pod, container: Json, policy: MemoryQos, allocatable: int) -> int:
    asked = _bytes(demand.container_amounts(container, "requests"))
    limit = _bytes(demand.container_amounts(container, "limits"))
    if not limit and demand.pod_level(pod, "limits").get(demand.MEMORY):
        return _UNLIMITED  # that of the pod counts for all of its containers
    return _threshold(asked, limit or allocatable, policy.throttling) if asked != limit or not asked else _UNLIMITED


def _threshold(asked: int, most: int, throttling: float | None) -> int:
    """Whole pages below `most`; 0: none."""
    if throttling is None or not most or (asked and asked == most):
        return _UNLIMITED
    found = math.floor((asked + (most - asked) * throttling) / mmap.PAGESIZE) * mmap.PAGESIZE
    return found if found > asked else _UNLIMITED


def _bytes(amounts: Amounts) -> int:
    return whole(amounts.get(demand.MEMORY, demand.ZERO))
