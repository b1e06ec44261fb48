"""In-place resize of what a container has for itself: refused for good, as upstream refuses it.

Follows pkg/kubelet/allocation/handlers.go with its gates InPlacePodVerticalScalingExclusiveCPUs and -Memory off.
"""

from __future__ import annotations

from agent.common.model.pods import Kind, Pod
from agent.common.model.refusal import Refusal
from agent.common.plan import demand
from agent.resources.plan.resize_status import INFEASIBLE

_TEXT = 'Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "{policy}"'


def refusal(wanted: Pod, allocated: Pod, *, static_cpus: bool, static_memory: bool = False) -> Refusal | None:
    """Why the pod cannot have what it asks for now; None: nothing here is against it."""
    if demand.qos_class(wanted) is not demand.Qos.GUARANTEED:
        return None
    if static_cpus and _differ(wanted, allocated, demand.CPU):
        return Refusal(INFEASIBLE, _TEXT.format(manager="CPU", policy="static"))
    if static_memory and _differ(wanted, allocated, demand.MEMORY):
        return Refusal(INFEASIBLE, _TEXT.format(manager="Memory", policy="Static"))
    return None


def _differ(wanted: Pod, allocated: Pod, name: str) -> bool:
    before = {one["name"]: one for _, one in allocated.containers(Kind.INIT, Kind.MAIN)}
    return any(
        demand.container_amounts(one, "requests").get(name, demand.ZERO)
        != demand.container_amounts(before.get(one["name"], one), "requests").get(name, demand.ZERO)
        for kind, one in wanted.containers(Kind.INIT, Kind.MAIN)
    )
