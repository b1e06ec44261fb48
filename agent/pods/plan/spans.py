"""Entries of a pod's timeline as spans. The names are upstream's where it has such a span; docs/traces.md lists them.

The trace of a pod's start is named by the pod's UID, and a span by the entry that it is: an exported span, a later
reading of the record and an agent that was started again agree on the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agent.pods.model.timeline import ActivityKind, TimelineEntry
from agent.pods.plan.scheduled import Scheduled, scheduled_of
from nodelib.json_values import Json
from nodelib.traces.model import Span, SpanContext
from nodelib.traces.sampling import span_id, trace_id

START = "pod start"
WAIT, SCHEDULE, BIND = "wait for a node", "schedule", "bind"
PLAN = "plan"
SYNC, TERMINATING, TERMINATED = "syncPod", "syncTerminatingPod", "syncTerminatedPod"
_WELL = ("ok", "")
_NAMES = {
    ActivityKind.NETWORK: "CNI ADD",
    ActivityKind.REMOVE_NETWORK: "CNI DEL",
    ActivityKind.PULL: "pull image",
    ActivityKind.VOLUMES: "mount volumes",
    ActivityKind.MOUNT: "mount volume",
    ActivityKind.SANDBOX: "create sandbox",
    ActivityKind.IMAGE: "look for image",
    ActivityKind.START: "start container",
    ActivityKind.CREATE: "create container",
    ActivityKind.RUN: "run container",
    ActivityKind.POST_START: "postStart hook",
    ActivityKind.PRE_STOP: "preStop hook",
    ActivityKind.STOP: "stop container",
    ActivityKind.ENDED: "container ran",
}
_NO_SPANS = (ActivityKind.READY, ActivityKind.NOT_READY)  # moments: SHOWN_READY begins at READY
# How a container ends is no error of the step that waited for it: `outcome` says how, in words.
_OUTCOME_IN_WORDS = ActivityKind.ENDED


@dataclass(frozen=True)
class TracedPod:
    """The pod that spans are about. Wall seconds, 0: unknown. `created` is whole, as the API has it; `seen`: when the
    node heard of the pod; `scheduled`: what its scheduler wrote on it."""

    uid: str
    namespace: str
    name: str
    created: float = 0.0
    seen: float = 0.0
    scheduled: Scheduled | None = None

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """Upstream's attributes of syncPod. The node is an attribute of the whole export."""
        return {
            "k8s.pod.uid": self.uid,
            "k8s.pod": f"{self.namespace}/{self.name}",
            "k8s.pod.name": self.name,
            "k8s.namespace.name": self.namespace,
        }

    @property
    def waited(self) -> float:
        """Seconds from creation until the node heard of it. By the scheduler's clock where it can be; by the API's
        times, which are whole, 0 for less than one."""
        if self.scheduled is not None:
            return max(0.0, self.seen - self.scheduled.began(self.created))
        waited = self.seen - self.created if self.created and self.seen else 0.0
        return waited if waited > 1.0 else 0.0

    @cached_property
    def context(self) -> SpanContext:
        """The span of its start."""
        trace = trace_id(START, self.uid)
        return SpanContext(trace, span_id(trace, START))


def has_span(entry: TimelineEntry) -> bool:
    return entry.what.kind not in _NO_SPANS


def context_of(trace: bytes, entry: TimelineEntry) -> SpanContext:
    """Equal for an entry that is under way and the same one when it has ended."""
    what = entry.what
    return SpanContext(trace, span_id(trace, what.kind.value, what.container, what.volume, repr(entry.at)))


def span_of(pod: TracedPod, entry: TimelineEntry, context: SpanContext, parent: bytes) -> Span:
    """`entry` has ended. The pod is named by the span that it is a part of, as upstream names it in syncPod only: a
    start has fifty parts."""
    what, attributes = entry.what, dict[str, str | int]({} if parent else pod.attributes)
    if what.container:
        attributes["k8s.container.name"] = what.container
    if what.volume:
        attributes["k8s.volume.name"] = what.volume
    if entry.note:
        attributes["nodewright.note"] = entry.note
    failed = "" if entry.outcome in _WELL else entry.outcome
    if failed and what.kind is _OUTCOME_IN_WORDS:
        attributes["nodewright.outcome"], failed = failed, ""
    if entry.attempt is not None:
        attributes["k8s.container.restart_count"] = entry.attempt
    name = _NAMES.get(what.kind) or what.kind.value
    return Span(context, name, entry.at, entry.seconds or 0.0, parent, attributes, failed)


def start_span(pod: TracedPod, ended: float, error: str = "") -> Iterable[Span]:
    """The root of a pod's start, `ended` at a wall time, and the wait before the node heard of it."""
    begin, trace = pod.seen - pod.waited, pod.context.trace
    yield Span(pod.context, START, begin, ended - begin, attributes=pod.attributes, error=error)
    if not pod.waited:
        return
    wait = SpanContext(trace, span_id(trace, WAIT))
    precise = pod.scheduled is not None and pod.scheduled.queued == begin
    attributes = pod.attributes if precise else {**pod.attributes, "nodewright.precision": "1s"}
    yield Span(wait, WAIT, begin, pod.waited, pod.context.span, attributes)
    if pod.scheduled is not None:
        queued, bound = pod.scheduled.queued, pod.scheduled.bound
        for name, at, end in ((SCHEDULE, queued, bound), (BIND, bound, pod.seen)):
            yield Span(SpanContext(trace, span_id(trace, name)), name, at, max(0.0, end - at), wait.span)


def plan_span(pod: TracedPod, number: int, due: float, seconds: float) -> Span:
    """From when something made a plan of the pod's start due until its first step began, with their turns on the event
    loop."""
    trace = pod.context.trace
    return Span(SpanContext(trace, span_id(trace, PLAN, repr(due), str(number))), PLAN, due, seconds, pod.context.span)


@dataclass(frozen=True)
class Sync:
    """A plan that is walked: the `number`th of this agent for the pod. `of_start`: a part of the pod's start, and not a
    trace of its own."""

    pod: TracedPod
    name: str
    number: int
    began: float
    of_start: bool

    @cached_property
    def context(self) -> SpanContext:
        what = (self.name, self.pod.uid, repr(self.began), str(self.number))
        trace = self.pod.context.trace if self.of_start else trace_id(*what)
        return SpanContext(trace, span_id(trace, *what))

    def span(self, ended: float) -> Span:
        """All steps of the plan ended then."""
        pod, of_start = self.pod, self.of_start
        attributes = {**pod.attributes, "k8s.pod.update_type": "create" if of_start else "sync"}
        parent, links = (pod.context.span, ()) if of_start else (b"", (pod.context,))
        return Span(self.context, self.name, self.began, ended - self.began, parent, attributes, links=links)


def record_spans(pod: TracedPod, meta: Json, entries: Sequence[TimelineEntry], now: float) -> list[Span]:
    """A pod's whole record as one trace, for who asks later: what was done until the API showed the pod ready is in
    its start; the rest stands beside that. What happened again and again is there as it was last.

    `meta`: the pod's metadata, with what its scheduler wrote there; the node heard of it when its record began. Entries
    under way last until `now`.
    """
    trace = pod.context.trace
    newest = [_newest(one, now) for one in entries if has_span(one)]
    ready = [one.at for one in newest if one.what.kind is ActivityKind.SHOWN_READY]
    begin = min([pod.seen or now, *(one.at for one in newest)])
    ended = min(
        (one.at + (one.seconds or 0.0) for one in newest if one.what.kind is ActivityKind.SHOWN_READY), default=now
    )
    heard = replace(pod, seen=begin, scheduled=scheduled_of(meta, pod.created, begin))
    spans = list(start_span(heard, max(ended, begin), "" if ready else "it is not ready"))
    for one in newest:
        parent = _parent(one, newest)
        inside = one.at <= ended
        above = context_of(trace, parent).span if parent else pod.context.span if inside else b""
        spans.append(span_of(pod, one, context_of(trace, one), above))
    return sorted(spans, key=lambda span: span.begin)


def _newest(entry: TimelineEntry, now: float) -> TimelineEntry:
    at = max(entry.at, entry.last_at)
    seconds = max(0.0, now - at) if entry.seconds is None else entry.seconds
    return replace(entry, at=at, seconds=seconds, last_at=at)


def _parent(entry: TimelineEntry, entries: Iterable[TimelineEntry]) -> TimelineEntry | None:
    """The newest step that `entry` is a part of and that had begun before it."""
    if entry.of is None:
        return None
    found = [one for one in entries if one.what == entry.of and one.at <= entry.at]
    return max(found, key=lambda one: one.at, default=None)
