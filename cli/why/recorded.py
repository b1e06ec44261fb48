"""A node's record of a pod, for waterfalls (view/plan/life.py) and traces (agent/pods/plan/spans.py). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.explain.model import Explanation, TimelineLine
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan.spans import TracedPod, record_spans
from cli.why.timeline import ordered
from nodelib.json_values import Json
from nodelib.kube.times import time_or
from nodelib.traces.model import Span
from view.model.pods import Step

_KINDS = {kind.value: kind for kind in ActivityKind}


def as_steps(timeline: Iterable[TimelineLine]) -> tuple[Step, ...]:
    """In the order in which they began, each step before its parts."""
    return tuple(
        Step(
            one.at,
            f"{one.step}" + (f" ({one.times} times)" if one.times > 1 else ""),
            one.seconds,
            one.outcome,
            bool(one.of),
            one.kind,
        )
        for one in _by_begin(ordered(timeline))
    )


def as_spans(found: Explanation, pod: Json, now: float) -> list[Span]:
    """The pod's record as one trace; `pod`: its object, empty where the API server does not answer."""
    meta = pod.get("metadata") or {}
    created = time_or(0.0, meta.get("creationTimestamp"))
    traced = TracedPod(found.uid, found.namespace, found.name, created)
    return record_spans(traced, meta, list(_entries(found.timeline)), now)


def _entries(timeline: Iterable[TimelineLine]) -> Iterator[TimelineEntry]:
    """What a newer agent calls by a name that is not known here is left out."""
    for one in timeline:
        kind, of_kind = _KINDS.get(one.kind), _KINDS.get(one.of_kind)
        if kind is None:
            continue
        # A part belongs to the container of its step; a volume is a part of the step that mounts all of them.
        of = Activity(of_kind, one.container) if of_kind is not None else None
        yield TimelineEntry(
            at=one.at,
            what=Activity(kind, one.container, one.volume),
            seconds=one.seconds,
            outcome=one.outcome,
            of=of,
            note=one.note,
            attempt=one.attempt,
            times=one.times,
            last_at=one.last_at,
        )


def _by_begin(lines: Iterable[TimelineLine]) -> list[TimelineLine]:
    groups: list[list[TimelineLine]] = []
    for one in lines:
        if one.of and groups:
            groups[-1].append(one)
        else:
            groups.append([one])
    return [one for group in sorted(groups, key=lambda group: group[0].at) for one in group]
