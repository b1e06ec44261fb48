"""The resources that a pod is allocated, applied to its spec and compared with those that the spec wants.

Follows pkg/kubelet/allocation (allocation_manager.go, handlers.go; KEP-1287): the spec says what is wanted, the
allocation what this node has promised, and everything below the pod workers uses the allocated pod. Only CPU and
memory can differ, of all containers but ephemeral ones and of the pod as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.demand import Qos
from agent.resources.model import CPU, MEMORY, Allocation
from nodelib.json_values import Json
from nodelib.quantity import parse

RESIZABLE = (Kind.INIT, Kind.MAIN)
_GROWING = (CPU, MEMORY)


def allocation_of(pod: Pod) -> Allocation:
    """The resources of the pod's spec."""
    stated = {one["name"]: one.get("resources") or {} for _, one in pod.containers(*RESIZABLE)}
    return Allocation(stated, pod.spec.get("resources"))


def same(one: Allocation, other: Allocation) -> bool:
    """Whether the amounts are equal, however they are written. Containers that only one of them has are ignored."""
    if one is other or one == other:
        return True
    if not same_resources(one.whole, other.whole):
        return False
    both = one.containers.keys() & other.containers.keys()
    return all(same_resources(one.containers[name], other.containers[name]) for name in both)


def same_resources(one: Json | None, other: Json | None) -> bool:
    """Whether two ResourceRequirements have equal amounts; absent and empty are the same."""
    return one == other or _numbers(one) == _numbers(other)


def applied(pod: Pod, allocation: Allocation) -> Pod:
    """The pod with the allocated resources in its spec; `pod` itself when they are the same."""
    if same(allocation_of(pod), allocation):
        return pod
    spec = dict(pod.spec)
    for kind in RESIZABLE:
        if spec.get(kind.value):
            spec[kind.value] = [_with(one, allocation.containers.get(one["name"])) for one in spec[kind.value]]
    spec["resources"] = allocation.whole
    if allocation.whole is None:
        del spec["resources"]
    return Pod({**pod.raw, "spec": spec}, pod.source)


def pending_order(waiting: Iterable[tuple[Pod, Pod, float]]) -> list[Pod]:
    """The order in which pending resizes are tried, from (wanted, allocated, pending since in wall seconds).

    First those that do not grow, then by priority, then Guaranteed pods, then those that wait longest.
    """

    def key(entry: tuple[Pod, Pod, float]) -> tuple[bool, int, bool, float]:
        wanted, allocated, since = entry
        priority = int(wanted.spec.get("priority") or 0)
        return grows(wanted, allocated), -priority, demand.qos_class(wanted) is not Qos.GUARANTEED, since

    return [wanted for wanted, _, _ in sorted(waiting, key=key)]


def grows(wanted: Pod, allocated: Pod) -> bool:
    """Whether the pod wants more CPU or memory than it is allocated."""
    new, old = demand.pod_requests(wanted, only=_GROWING), demand.pod_requests(allocated, only=_GROWING)
    return any(new.get(name, demand.ZERO) > old.get(name, demand.ZERO) for name in _GROWING)


def shrank(before: Pod, now: Pod) -> bool:
    """Whether the pod counts for less on this node now, so that others may fit."""
    old, new = demand.counted_requests(before, _GROWING), demand.counted_requests(now, _GROWING)
    return any(new.get(name, demand.ZERO) < old.get(name, demand.ZERO) for name in _GROWING)


def _with(container: Json, resources: Json | None) -> Json:
    return container if resources is None else {**container, "resources": resources}


def _numbers(resources: Json | None) -> dict[tuple[str, str], Decimal]:
    found = resources or {}
    return {
        (side, name): parse(text) for side in ("limits", "requests") for name, text in (found.get(side) or {}).items()
    }
