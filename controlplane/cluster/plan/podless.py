"""Workloads whose pods were never made, read from their API objects: no pod tells of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nodelib.json_values import Json, object_or_empty, objects_in

WORKLOADS = {
    "deployment": "/apis/apps/v1/deployments",
    "statefulset": "/apis/apps/v1/statefulsets",
    "daemonset": "/apis/apps/v1/daemonsets",
    "job": "/apis/batch/v1/jobs",
}


@dataclass(frozen=True, slots=True)
class Podless:
    """A workload that has no pods, or for which the API server refuses more."""

    kind: str
    namespace: str
    name: str
    reason: str


def podless(objects: Mapping[str, Iterable[Json]]) -> tuple[Podless, ...]:
    """`objects`: by the kinds of WORKLOADS. What waits for other things is seen among the pods."""
    return tuple(
        Podless(kind, str(obj["metadata"].get("namespace", "")), str(obj["metadata"]["name"]), reason)
        for kind, reason_of in _REASONS.items()
        for obj in objects.get(kind, ())
        if "deletionTimestamp" not in obj["metadata"]
        and (reason := reason_of(obj, object_or_empty(obj.get("spec")), object_or_empty(obj.get("status"))))
    )


def _deployment(obj: Json, spec: Json, status: Json) -> str:
    refused = _condition(status, "ReplicaFailure")
    if refused:
        return f"has {_number(status, 'replicas')} of {_number(spec, 'replicas', 1)} pods: {refused}"
    return _replicas(obj, spec, status)


def _replicas(obj: Json, spec: Json, status: Json) -> str:
    wanted = _number(spec, "replicas", 1)
    seen = status.get("observedGeneration") == obj["metadata"].get("generation")
    paused = spec.get("paused") is True
    return f"has 0 of {wanted} pods" if seen and wanted and not paused and not _number(status, "replicas") else ""


def _daemonset(obj: Json, spec: Json, status: Json) -> str:
    wanted = _number(status, "desiredNumberScheduled")
    return f"has 0 of {wanted} pods" if wanted and not _number(status, "currentNumberScheduled") else ""


def _job(obj: Json, spec: Json, status: Json) -> str:
    if spec.get("suspend") is True or any(_condition(status, end) for end in ("Complete", "Failed", "FailureTarget")):
        return ""
    counted = ("active", "succeeded", "failed", "terminating")
    wanted = _number(spec, "parallelism", 1) and status.get("startTime")
    return "has no pods yet" if wanted and not any(_number(status, one) for one in counted) else ""


_REASONS: Mapping[str, Callable[[Json, Json, Json], str]] = {
    "deployment": _deployment,
    "statefulset": _replicas,
    "daemonset": _daemonset,
    "job": _job,
}


def _condition(status: Json, kind: str) -> str:
    """What a condition that is true says; "" when it is not."""
    for one in objects_in(status.get("conditions")):
        if one.get("type") == kind and one.get("status") == "True":
            return str(one.get("message") or one.get("reason") or kind)
    return ""


def _number(of: Json, field: str, default: int = 0) -> int:
    value = of.get(field, default)
    return value if isinstance(value, int) else default
