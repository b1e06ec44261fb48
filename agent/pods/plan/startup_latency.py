"""How long a pod took to start, without image pulls and init containers, which the node cannot speed up.

Follows pkg/kubelet/util/pod_startup_latency_tracker.go and the pod startup latency SLI
(kubernetes/community sig-scalability/slos/pod_startup_latency.md). Wall seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar
from nodelib.json_values import Json
from nodelib.kube.times import time_or, time_or_none

# Volumes that live and die with their pod: any other kind makes the pod stateful, which the SLI leaves out.
_EPHEMERAL = ("secret", "configMap", "downwardAPI", "emptyDir", "projected")


def has_started(pod: Pod) -> bool:
    """Whether every main container runs, by the status in the API."""
    statuses = pod.status.get("containerStatuses") or []
    return bool(statuses) and all(((one.get("state") or {}).get("running") or {}).get("startedAt") for one in statuses)


def is_stateful(pod: Pod) -> bool:
    """Whether the pod has a volume that outlives it."""
    return any(not any(kind in volume for kind in _EPHEMERAL) for volume in pod.spec.get("volumes") or [])


def start_times(pod: Pod, now: float, pulls: Iterable[tuple[float, float]]) -> tuple[float, float | None]:
    """(from creation to `now`, the same without pulls and init containers; None for a stateful pod)."""
    created = time_or(now, pod.meta.get("creationTimestamp"))
    total = max(0.0, now - created)
    if is_stateful(pod):
        return total, None
    return total, max(0.0, total - _covered(pulls) - _init_time(pod))


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds that the spans cover; overlaps count once."""
    covered, end = 0.0, float("-inf")
    for began, ended in sorted(spans):
        covered += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return covered


def _init_time(pod: Pod) -> float:
    ordinary = {one["name"] for kind, one in pod.containers(Kind.INIT) if not is_sidecar(kind, one)}
    listed = [one for one in pod.status.get("initContainerStatuses") or [] if one.get("name") in ordinary]
    return sum(_ran(one.get("state") or {}) + _ran(one.get("lastState") or {}) for one in listed)


def _ran(state: Json) -> float:
    ended = state.get("terminated") or {}
    began, finished = (time_or_none(ended.get(name)) for name in ("startedAt", "finishedAt"))
    return max(0.0, finished - began) if began is not None and finished is not None else 0.0
