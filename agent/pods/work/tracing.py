"""Exports the spans of pods as their timelines grow. Nothing is measured here: a span is an entry of the timeline.

A pod that is new to the node has one trace for its start, until the API shows it ready or it ends before. What is done
later is a trace for each plan, as upstream's syncPod is, linked to the start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from agent.common.model.pods import Pod
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan import spans
from agent.pods.plan.scheduled import scheduled_of
from agent.pods.plan.spans import Sync, TracedPod
from nodelib.clock import Clock
from nodelib.kube.times import time_or
from nodelib.traces.current import from_now_on, working_for
from nodelib.traces.model import HasContext, Span, SpanContext
from nodelib.traces.sampling import is_sampled

# Takes what makes a span, so that it is made when it is sent, with many others, and not between a pod's steps.
Sink = Callable[[Callable[[], Span]], None]
_PULL, _READY, _SHOWN_READY = ActivityKind.PULL, ActivityKind.READY, ActivityKind.SHOWN_READY
# What no plan does, although it may be noted while one is walked.
_BESIDE_PLANS = (ActivityKind.ADMIT, ActivityKind.ENDED, ActivityKind.FIRST_PROBE, _SHOWN_READY)
_OF_THE_START = (*_BESIDE_PLANS, _PULL)  # a pull outlives the plan that began it
# What no plan waits for, or what wakes the worker itself.
_NO_STEPS = (ActivityKind.ENDED, ActivityKind.FIRST_PROBE, _READY, ActivityKind.NOT_READY, _SHOWN_READY, _PULL)


@dataclass(frozen=True, slots=True)
class PodTracing:
    """The pods of a node that are traced: `per_million` of them. `has_api`: the API shows statuses, and a start ends
    with that; without an API server it ends when the pod is ready."""

    sink: Sink
    per_million: int
    clock: Clock
    has_api: bool = True

    def follower(self, pod: Pod, seen: float, *, is_new: bool) -> PodTracer | None:
        """None: this pod is not traced. `seen`: when it came from its source, in wall seconds; `is_new`: nothing of it
        runs, so that its start is still to come."""
        created = time_or(0.0, pod.meta.get("creationTimestamp"))
        scheduled = scheduled_of(pod.meta, created, seen)
        traced = TracedPod(pod.uid, pod.namespace, pod.name, created, seen, scheduled)
        if not is_sampled(traced.context.trace, self.per_million):
            return None
        return PodTracer(traced, self, starting=is_new)


class _Part:
    """The span of a timeline's entry, a part of another one. One object from the entry's begin until the span is sent,
    which calls it: what is made between a pod's steps costs several times what it costs later, many in a row."""

    __slots__ = ("_above", "_made", "_pod", "entry")

    def __init__(self, pod: TracedPod, entry: TimelineEntry, above: HasContext) -> None:
        self._pod, self.entry, self._above = pod, entry, above
        self._made: SpanContext | None = None

    @property
    def context(self) -> SpanContext:
        if self._made is None:
            self._made = spans.context_of(self._above.context.trace, self.entry)
        return self._made

    def __call__(self) -> Span:
        """Of an entry that has ended."""
        return spans.span_of(self._pod, self.entry, self.context, self._above.context.span)


class PodTracer:
    """Follows the timeline of one pod (Follower in work/timeline.py)."""

    def __init__(self, pod: TracedPod, node: PodTracing, *, starting: bool) -> None:
        self._pod, self._node, self._starting = pod, node, starting
        self._last = _SHOWN_READY if node.has_api else _READY
        self._sync: Sync | None = None
        self._syncs = itertools.count()
        self._open: dict[int, _Part] = {}  # what is under way, by the id() of the entry that began it
        self._ended = 0.0  # when the last step ended since the last plan, which makes the next one due; 0: none did
        self._due = 0.0  # since when the plan was due whose first step is still to begin; 0: there is none

    def nothing_to_do(self) -> None:
        """A plan has no steps."""
        self._ended = 0.0

    def planned(self, woken_at: float) -> None:
        """A plan is made: because a step ended, or else for what woke the worker at that wall time (0: nothing)."""
        self._due, self._ended = self._ended or woken_at, 0.0

    def found_ready(self, woken_at: float) -> None:
        """The pod is ready or not any more, perhaps while steps are still walked."""
        due, self._ended = max(self._ended, woken_at), 0.0
        self._plan_ended(due)

    def _plan_ended(self, due: float) -> None:
        """Its first step begins, or it found the pod ready."""
        self._due = 0.0
        if self._starting and due:
            took = max(0.0, self._node.clock.now() - due)
            self._node.sink(partial(spans.plan_span, self._pod, next(self._syncs), due, took))

    def sync_began(self, name: str, *, finished: bool = False) -> None:
        """A plan with steps begins; `name`: upstream's function. `finished`: the pod ends because its work is done."""
        if name != spans.SYNC:
            self.start_ended("" if finished else "it ended before it was ready")
        self._sync = Sync(self._pod, name, next(self._syncs), self._node.clock.now(), self._starting)

    def sync_ended(self) -> None:
        """All steps of the plan have ended."""
        if self._sync is not None:
            sync, self._sync = self._sync, None
            self._node.sink(partial(sync.span, self._node.clock.now()))

    def start_ended(self, error: str = "") -> None:
        """The pod is ready and the API shows it, or it will never be."""
        if self._starting:
            self._starting = False
            for span in spans.start_span(self._pod, self._node.clock.now(), error):
                self._node.sink(partial(_itself, span))

    def begun(self, entry: TimelineEntry) -> None:
        if self._due:
            self._plan_ended(self._due)
        if (above := self._above(entry)) is not None:
            part = self._open[id(entry)] = _Part(self._pod, entry, above)
            if entry.what.kind is _PULL:  # it goes on beside the step that began it
                from_now_on(part)

    def ended(self, entry: TimelineEntry, begun: TimelineEntry | None) -> None:
        part = self._open.pop(id(begun), None) if begun is not None else None
        if part is not None:
            part.entry = entry
            self._node.sink(part)
        elif spans.has_span(entry) and (above := self._above(entry)) is not None:
            self._node.sink(_Part(self._pod, entry, above))
        if entry.of is None and entry.seconds is not None and entry.what.kind not in _NO_STEPS:
            self._ended = entry.at + entry.seconds
        if entry.what.kind is self._last:
            self.start_ended()

    def within(self, entry: TimelineEntry) -> AbstractContextManager[None]:
        return working_for(self._open.get(id(entry)))

    def context_of(self, what: Activity) -> SpanContext | None:
        """The span of this step, which is under way; the newest if there are several."""
        found = self._newest(what)
        return None if found is None else found.context

    def _newest(self, what: Activity) -> _Part | None:
        for one in reversed(self._open.values()):
            if one.entry.what.kind is what.kind and one.entry.what == what:
                return one
        return None

    def _above(self, entry: TimelineEntry) -> HasContext | None:
        """The span that this entry is a part of. None: it is in no trace, as what happens between later plans."""
        if entry.of is not None and (span := self._newest(entry.of)) is not None:
            return span
        kind = entry.what.kind
        if self._starting and kind in _OF_THE_START:
            return self._pod
        if self._sync is not None and kind not in _BESIDE_PLANS:
            return self._sync
        return self._pod if self._starting else None


def _itself(span: Span) -> Span:
    return span
