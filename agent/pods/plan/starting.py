"""How far a pod's start is, as its timeline notes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from agent.common.model.pods import ContainerState, ObservedPod, Pod, ProbeState, RunState
from nodelib.json_values import Json

_TELLS = ("readinessProbe", "startupProbe")  # probes without which a container is ready as soon as it runs


def is_new(pod: Pod, seen: ObservedPod) -> bool:
    """Whether all of the pod's start is still to come, so that a restarted agent notes none twice."""
    return not pod.status.get("startTime") and not pod.is_deleted and not seen.sandboxes


def is_ready(status: Json) -> bool:
    """By the conditions of a PodStatus."""
    listed = status.get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in listed)


def first_ready(
    pod: Pod, seen: ObservedPod, probes: Mapping[str, ProbeState], known: Collection[str], after: float
) -> Iterator[ContainerState]:
    """Running containers that their probes have found ready, but for those in `known` (ids) and those that started
    before `after` (wall seconds)."""
    for one in seen.containers:
        state = probes.get(one.id)
        if state is None or not state.ready or one.id in known or one.state is not RunState.RUNNING:
            continue
        found = pod.container(one.name)
        if found and any(found[1].get(kind) for kind in _TELLS) and one.started_at / 1e9 >= after:
            yield one
