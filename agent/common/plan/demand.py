"""What a pod asks for: requests, limits, QoS class, OOM score, whether it is critical.

Follows k8s.io/component-helpers/resource/helpers.go (PodRequests, PodLimits; the pod level
resources and the sidecar rules are part of the API) and pkg/apis/core/v1/helper/qos. Amounts are
exact Decimals in the resource's own unit (cores, bytes, pieces).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from typing import Any

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar
from nodelib.errors import Invalid
from nodelib.json_values import Json, object_or_empty
from nodelib.quantity import parse

Amounts = dict[str, Decimal]

CPU, MEMORY, PODS, STORAGE, PIDS = "cpu", "memory", "pods", "ephemeral-storage", "pid"
HUGEPAGES_PREFIX = "hugepages-"
ZERO = Decimal(0)

_GUARANTEED_SCORE = -997
_BEST_EFFORT_SCORE = 1000
_SYSTEM_CRITICAL = 2_000_000_000  # pkg/apis/scheduling: SystemCriticalPriority


class Qos(Enum):
    """PodQOSClass; the value is what status.qosClass says."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


Names = Sequence[str] | None
"""Of which resources amounts are wanted, None: of all. A pod may have tens of thousands of resources that no node
knows, and what is worked out for each pod of a node must not cost that much."""


def amounts(listed: Mapping[str, Any] | None, only: Names = None) -> Amounts:
    """A ResourceList as numbers. Raises Invalid for what is not a quantity."""
    if only is not None:
        return {name: parse(listed[name]) for name in only if name in listed} if listed else {}
    return {name: parse(text) for name, text in (listed or {}).items()}


def pod_requests(pod: Pod, *, overhead: bool = True, only: Names = None) -> Amounts:
    """What the scheduler counts for this pod."""
    total = _aggregate(pod, "requests", only)
    total.update(pod_level(pod, "requests", only))
    if overhead:
        _add(total, amounts(pod.spec.get("overhead"), only))
    return total


def counted_requests(pod: Pod, only: Names = None) -> Amounts:
    """What the node counts for a pod that it runs: the maximum of spec, allocated and actuated resources.

    A resize that shrinks a pod frees nothing before it is done (helpers.go, UseStatusResources). The spec of `pod`
    must be the allocated one. What others wrote into its status and is no amount does not count: it is asked of every
    pod of the node when one is admitted.
    """
    total = pod_requests(pod, only=only)
    shown = object_or_empty(pod.status.get("resources"))
    for listed in (object_or_empty(pod.status.get("allocatedResources")), object_or_empty(shown.get("requests"))):
        for name in listed if only is None else (one for one in only if one in listed):
            with suppress(Invalid):
                _raise_to(total, {name: parse(listed[name])})
    return total


def pod_limits(pod: Pod, *, overhead: bool = True, only: Names = None) -> Amounts:
    """What the pod may use at most; a resource without any limit is absent."""
    total = _aggregate(pod, "limits", only)
    total.update(pod_level(pod, "limits", only))
    if overhead:
        for name, amount in amounts(pod.spec.get("overhead"), only).items():
            if total.get(name):
                total[name] += amount
    return total


def qos_class(pod: Pod) -> Qos:
    """The class that the API server has put into the status, else (static pods) the computed one."""
    given = pod.status.get("qosClass")
    return Qos(given) if given in {known.value for known in Qos} else computed_qos(pod)


def computed_qos(pod: Pod) -> Qos:
    """Guaranteed when cpu and memory requests equal limits everywhere, BestEffort when nothing is asked for."""
    return pod.once("qos class", lambda: _qos_of(pod))


def _qos_of(pod: Pod) -> Qos:
    if pod_level(pod, "requests") or pod_level(pod, "limits"):
        return _class_of(pod.spec["resources"])
    classes = {_class_of(container.get("resources") or {}) for _, container in pod.containers(Kind.INIT, Kind.MAIN)}
    if not classes:
        return Qos.BEST_EFFORT
    return classes.pop() if len(classes) == 1 else Qos.BURSTABLE


def pod_level(pod: Pod, side: str, only: Names = None) -> Amounts:
    """spec.resources.requests or .limits, of the resources that can be given for a whole pod."""
    listed = (pod.spec.get("resources") or {}).get(side) or {}
    kept = {name: text for name, text in listed.items() if name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)}
    return amounts(kept, only)


def container_amounts(container: Json, side: str, only: Names = None) -> Amounts:
    """`side`: requests or limits of one container."""
    return amounts((container.get("resources") or {}).get(side), only)


def is_node_critical(pod: Pod) -> bool:
    """pkg/kubelet/types.IsNodeCriticalPod: critical, and of the class named so."""
    return is_critical(pod) and pod.spec.get("priorityClassName") == "system-node-critical"


def is_critical(pod: Pod) -> bool:
    """pkg/kubelet/types.IsCriticalPod: static and system-critical pods are never preempted by others.

    Where a pod was read decides, and not its annotations, which are its owner's to write: upstream's kubelet overwrites
    them as it reads a pod (pkg/kubelet/config). Mirror pods are not run.
    """
    priority = pod.spec.get("priority")
    return bool(pod.source != "api" or (priority is not None and priority >= _SYSTEM_CRITICAL))


def oom_score_adj(pod: Pod, container: Json, memory_capacity: int) -> int:
    """-997 to 1000 (pkg/kubelet/qos/policy.go): the more memory a container requests, the later it is killed."""
    if is_node_critical(pod):
        return _GUARANTEED_SCORE
    quality = qos_class(pod)
    if quality is Qos.GUARANTEED:
        return _GUARANTEED_SCORE
    if quality is Qos.BEST_EFFORT or memory_capacity <= 0:
        return _BEST_EFFORT_SCORE
    share = _unclaimed_share(pod)
    score = _score(_memory_request(container) + share, memory_capacity)
    inits = [other["name"] for _, other in pod.containers(Kind.INIT)]
    if is_sidecar(Kind.INIT, container) and container["name"] in inits:
        regular = [_memory_request(other) for _, other in pod.containers(Kind.MAIN)]
        score = min(score, _score(min(regular, default=0) + share, memory_capacity))
    return max(_BEST_EFFORT_SCORE + _GUARANTEED_SCORE, min(score, _BEST_EFFORT_SCORE - 1))


def total_of(parts: Iterable[Mapping[str, Decimal]]) -> Amounts:
    """The sum of several lists."""
    total: Amounts = {}
    for part in parts:
        _add(total, part)
    return total


def _score(memory: int, capacity: int) -> int:
    return 1000 - 1000 * memory // capacity


def _memory_request(container: Json) -> int:
    return int(container_amounts(container, "requests", (MEMORY,)).get(MEMORY, ZERO))


def _unclaimed_share(pod: Pod) -> int:
    """The pod level request beyond the containers' requests, divided among all containers."""
    members = sum(1 for _ in pod.containers(Kind.INIT, Kind.MAIN))
    asked = int(pod_level(pod, "requests").get(MEMORY, ZERO))
    claimed = int(_aggregate(pod, "requests", (MEMORY,)).get(MEMORY, ZERO))
    return max(0, asked - claimed) // members if asked and members else 0


def _class_of(resources: Mapping[str, Any]) -> Qos:
    names = CPU, MEMORY
    requests, limits = amounts(resources.get("requests"), names), amounts(resources.get("limits"), names)
    classes = {_class_of_one(requests.get(name, ZERO), limits.get(name, ZERO)) for name in names}
    return classes.pop() if len(classes) == 1 else Qos.BURSTABLE


def _class_of_one(request: Decimal, limit: Decimal) -> Qos:
    if request != limit:
        return Qos.BURSTABLE
    return Qos.GUARANTEED if request else Qos.BEST_EFFORT


def _aggregate(pod: Pod, side: str, only: Names) -> Amounts:
    """All containers together, or the peak of the init phase, whichever is more."""
    if only is None:
        return _added_up(pod, side, None)
    return dict(pod.once(("amounts", side, tuple(only)), lambda: _added_up(pod, side, only)))


def _added_up(pod: Pod, side: str, only: Names) -> Amounts:
    total: Amounts = {}
    for _, container in pod.containers(Kind.MAIN):
        _add(total, container_amounts(container, side, only))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for kind, container in pod.containers(Kind.INIT):
        own = container_amounts(container, side, only)
        if is_sidecar(kind, container):
            _add(total, own)
            _add(sidecars, own)
            own = dict.fromkeys(own, ZERO)
        # Of what only the sidecars have there is as much as when the last of them began.
        _raise_to(peak, {name: amount + sidecars.get(name, ZERO) for name, amount in own.items()})
    _raise_to(total, peak)
    return total


def _add(total: Amounts, more: Mapping[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, ZERO) + amount


def _raise_to(total: Amounts, other: Mapping[str, Decimal]) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, amount), amount)
