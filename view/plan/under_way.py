"""What a pod's containers are at while it starts: an init container that runs, a probe that was not good yet. Pure.

A node records these when they end. Until then the pod's own status tells of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.kube.times import time_or
from view.model.pods import Step

_ENDED, _FIRST_PROBE, _READY = "ended", "first probe", "ready"  # kinds of steps
_WHOLE = 2.0  # seconds between a recorded start and that of the API, which has no fractions


def under_way(pod: Json, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Without an end. None of a pod that was ready once, or of which there is no record."""
    if not steps or any(one.kind == _READY for one in steps):
        return ()
    return tuple(_under_way(pod, steps))


def _under_way(pod: Json, steps: Sequence[Step]) -> Iterator[Step]:
    spec, status = object_or_empty(pod.get("spec")), object_or_empty(pod.get("status"))
    for one, known in _both(spec.get("initContainers"), status.get("initContainerStatuses")):
        began = _began(known, steps)
        if one.get("restartPolicy") != "Always":
            yield from _step(_ENDED, one, began)
        elif one.get("startupProbe") and not known.get("started"):
            yield from _step(_FIRST_PROBE, one, began)
    for one, known in _both(spec.get("containers"), status.get("containerStatuses")):
        probed = one.get("readinessProbe") or one.get("startupProbe")
        began = _began(known, steps)
        if probed and not known.get("ready") and not _has(steps, _FIRST_PROBE, one, began):
            yield from _step(_FIRST_PROBE, one, began)


def _both(containers: object, statuses: object) -> Iterator[tuple[Json, Json]]:
    known = {one.get("name"): one for one in objects_in(statuses)}
    for one in objects_in(containers):
        if one.get("name") in known:
            yield one, known[one["name"]]


def _began(status: Json, steps: Iterable[Step]) -> float:
    """When the container began to run: by its node, otherwise by the API; 0 if it does not run."""
    running = object_or_empty(object_or_empty(status.get("state")).get("running"))
    at = time_or(0.0, running.get("startedAt"))
    name = f"start {status.get('name')}"
    ends = (one.at + one.seconds for one in steps if one.seconds is not None and _called(one, name))
    return next((end for end in ends if abs(end - at) < _WHOLE), at) if at else 0.0


def _step(kind: str, container: Json, began: float) -> Iterator[Step]:
    if began:
        yield Step(began, f"{kind} {container.get('name')}", None, "", kind=kind)


def _has(steps: Iterable[Step], kind: str, container: Json, began: float) -> bool:
    name = f"{kind} {container.get('name')}"
    return any(_called(one, name) and one.at + (one.seconds or 0.0) >= began for one in steps)


def _called(step: Step, name: str) -> bool:
    """What was done several times says so behind its name."""
    return step.name == name or step.name.startswith(f"{name} (")
