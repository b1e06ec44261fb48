"""A resize in a pod's status and events: its two conditions, and the resources of the pod as a whole.

Follows pkg/kubelet/status/status_manager.go (PodResizePending, PodResizeInProgress),
pkg/kubelet/events/resize.go and convertToAPIPodLevelResourcesStatus of kubelet_pods.go.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.resources.model import CPU, MEMORY, Limits, ResizeCondition, ResizeState
from agent.resources.plan.cgroups import shares
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339, time_or
from nodelib.quantity import format_bytes, format_exact, format_milli, milli

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
_LEAST_CPU = 10  # thousandths; a quota cannot be less (1 ms in 100 ms)
_LEAST_SHARES = 2


def put_off(state: ResizeState, reason: str, message: str, generation: int, now: float) -> tuple[ResizeState, bool]:
    """The resize cannot be allocated; also whether that is news. Everything but Infeasible is tried again."""
    reason = INFEASIBLE if reason == INFEASIBLE else DEFERRED
    old = state.pending
    news = old is None or (old.reason, old.generation) != (reason, generation)
    return replace(state, pending=_condition(old, reason, message, generation, now)), news


def settled(state: ResizeState) -> ResizeState:
    """No resize is pending: what is wanted is allocated."""
    return replace(state, pending=None)


def allocated(generation: int, now: float) -> ResizeState:
    """The resize was allocated; errors of an older one are dropped."""
    return ResizeState(progress=_condition(None, "", "", generation, now))


def under_way(state: ResizeState, generation: int, now: float) -> ResizeState:
    """The allocated resources are not in force yet. A condition that is set already stays."""
    if state.progress is not None:
        return state
    return replace(state, progress=_condition(None, "", "", generation, now))


def failed(state: ResizeState, message: str, generation: int, now: float) -> tuple[ResizeState, bool]:
    """An attempt to put it in force failed; also whether that is news. The condition keeps its generation."""
    old = state.progress
    kept = old.generation if old is not None else generation
    news = old is None or (old.reason, old.message) != (ERROR, message)
    return replace(state, progress=_condition(old, ERROR, message, kept, now)), news


def backfilled(status: Json) -> ResizeState:
    """The state that a restarted agent takes from the conditions in the API."""
    found = {one.get("type"): one for one in status.get("conditions") or []}
    return ResizeState(_restored(found.get(PENDING)), _restored(found.get(IN_PROGRESS)))


def conditions(state: ResizeState) -> list[Json]:
    """The conditions for the pod's status."""
    return [
        {
            "type": kind,
            "status": "True",
            "observedGeneration": one.generation,
            "lastProbeTime": format_rfc3339(one.probed),
            "lastTransitionTime": format_rfc3339(one.since),
            **({"reason": one.reason} if one.reason else {}),
            **({"message": one.message} if one.message else {}),
        }
        for kind, one in ((PENDING, state.pending), (IN_PROGRESS, state.progress))
        if one is not None
    ]


def event_message(head: str, pod: Pod, generation: int, error: str = "") -> str:
    """The message of ResizeStarted and similar events: `head` and the resources of each container as JSON."""
    summary: Json = {}
    for kind, field in ((Kind.INIT, "initContainers"), (Kind.MAIN, "containers")):
        listed = [
            {"name": one["name"], "resources": _sorted(one.get("resources") or {})} for _, one in pod.containers(kind)
        ]
        if listed:
            summary[field] = listed
    summary["generation"] = generation
    if error:
        summary["error"] = error
    return f"{head}: {json.dumps(summary, separators=(',', ':'), ensure_ascii=False)}"


def pod_resources(pod: Pod, phase: str, limits: Limits | None) -> Json:
    """status.resources: from the pod's cgroup while it runs, otherwise what it is allocated."""
    stated = pod.spec.get("resources") or {}
    asked = {name: shown(name, amount) for name, amount in demand.pod_requests(pod).items()}
    if phase != "Running" or limits is None:
        bounded = {name: shown(name, amount) for name, amount in demand.pod_limits(pod).items()}
        return _filled(stated, asked, bounded)
    requests, most = dict(stated.get("requests") or {}), dict(stated.get("limits") or {})
    if limits.cpu_shares:
        _set_cpu_request(requests, asked, limits.cpu_shares)
    if MEMORY not in requests and MEMORY in asked:
        requests[MEMORY] = asked[MEMORY]
    if limits.cpu_quota and limits.cpu_quota > 0 and limits.cpu_period:
        cpu = limits.cpu_quota * 1000 // limits.cpu_period
        if max(cpu, milli(most.get(CPU, 0))) > _LEAST_CPU:
            most[CPU] = format_milli(cpu)
    if limits.memory:
        most[MEMORY] = format_bytes(limits.memory)
    return _filled(stated, requests, most)


def shown(name: str, amount: Decimal) -> str:
    """An amount as the API server writes it, because it is compared with what comes back."""
    return format_milli(milli(str(amount))) if name == CPU else format_exact(amount)


def _set_cpu_request(requests: Json, asked: Json, found: int) -> None:
    # Shares are coarse: the requested amount is kept if it gives the same number.
    for text in (requests.get(CPU), asked.get(CPU)):
        if text is not None and shares(milli(text)) == found:
            requests[CPU] = text
            return
    cpu = -(-found * 1000 // 1024)
    if max(cpu, milli(requests.get(CPU, 0))) > _LEAST_SHARES:
        requests[CPU] = format_milli(cpu)


def _filled(stated: Json, requests: Json, limits: Json) -> Json:
    found = {**stated, "requests": requests, "limits": limits}
    return {name: part for name, part in found.items() if part}


def _condition(old: ResizeCondition | None, reason: str, message: str, generation: int, now: float) -> ResizeCondition:
    since = old.since if old is not None and old.reason == reason else now
    return ResizeCondition(generation, since, now, reason, message)


def _restored(found: Json | None) -> ResizeCondition | None:
    if found is None or found.get("status") != "True":
        return None
    since, probed = found.get("lastTransitionTime"), found.get("lastProbeTime")
    moved = time_or(0.0, since)
    return ResizeCondition(
        int(found.get("observedGeneration") or 0),
        moved,
        time_or(moved, probed),
        str(found.get("reason") or ""),
        str(found.get("message") or ""),
    )


def _sorted(resources: Json) -> Json:
    found: Json = {}
    for side in ("limits", "requests"):
        if resources.get(side):
            found[side] = dict(sorted(resources[side].items()))
    return found
