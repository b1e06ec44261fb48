"""Exports the spans of pods as their timelines grow. Nothing is measured here: a span is an entry of the timeline.

A pod that is new to the node has one trace for its start, until the API shows it ready or it ends before. What is done
later is a trace for each plan, as upstream's syncPod is, linked to the start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from agent.common.model.pods import Pod
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan import spans
from agent.pods.plan.spans import TracedPod
from nodelib.clock import Clock
from nodelib.kube.times import time_or
from nodelib.traces.current import from_now_on, working_for
from nodelib.traces.model import Span, SpanContext
from nodelib.traces.sampling import is_sampled, span_id, trace_id

Sink = Callable[[Span], None]
# What no plan does, although it may be noted while one is walked.
_BESIDE_PLANS = (ActivityKind.ADMIT, ActivityKind.ENDED, ActivityKind.FIRST_PROBE, ActivityKind.SHOWN_READY)


@dataclass(frozen=True, slots=True)
class PodTracing:
    """The pods of a node that are traced: `per_million` of them. `tells`: the API shows statuses, and a start ends
    with that; without an API server it ends when the pod is ready."""

    sink: Sink
    per_million: int
    clock: Clock
    tells: bool = True

    def follower(self, pod: Pod, *, is_new: bool) -> PodTracer | None:
        """None: this pod is not traced. `is_new`: nothing of it runs, so that its start is still to come."""
        created = time_or(0.0, pod.meta.get("creationTimestamp"))
        traced = TracedPod(pod.uid, pod.namespace, pod.name, created, self.clock.now())
        if not is_sampled(traced.root.trace, self.per_million):
            return None
        return PodTracer(traced, self, starting=is_new)


@dataclass(slots=True)
class _Sync:
    name: str
    context: SpanContext
    parent: bytes
    began: float


class PodTracer:
    """Follows the timeline of one pod (Follower in work/timeline.py)."""

    def __init__(self, pod: TracedPod, node: PodTracing, *, starting: bool) -> None:
        self._pod, self._node, self._starting = pod, node, starting
        self._sync: _Sync | None = None
        self._syncs = itertools.count()
        self._open: dict[int, tuple[Activity, SpanContext, bytes]] = {}  # by the entry's id(): it is under way

    def sync_began(self, name: str, *, finished: bool = False) -> None:
        """A plan with steps begins; `name`: upstream's function. `finished`: the pod ends because its work is done."""
        if name != spans.SYNC:
            self.start_ended("" if finished else "it ended before it was ready")
        now = self._node.clock.now()
        what = (name, self._pod.uid, repr(now), str(next(self._syncs)))
        if self._starting:
            trace, parent = self._pod.root.trace, self._pod.root.span
        else:
            trace, parent = trace_id(*what), b""
        self._sync = _Sync(name, SpanContext(trace, span_id(trace, *what)), parent, now)

    def sync_ended(self) -> None:
        """All steps of the plan have ended."""
        sync, self._sync = self._sync, None
        if sync is not None:
            times, of_start = (sync.began, self._node.clock.now()), sync.parent != b""
            self._node.sink(spans.sync_span(self._pod, sync.name, sync.context, sync.parent, times, of_start))

    def start_ended(self, error: str = "") -> None:
        """The pod is ready and the API shows it, or it will never be."""
        if self._starting:
            self._starting = False
            for span in spans.start_span(self._pod, self._node.clock.now(), error):
                self._node.sink(span)

    def begun(self, entry: TimelineEntry) -> None:
        above = self._above(entry)
        if above is not None:
            context = spans.context_of(above.trace, entry)
            self._open[id(entry)] = (entry.what, context, above.span)
            if entry.what.kind is ActivityKind.PULL:  # it goes on beside the step that began it
                from_now_on(context)

    def ended(self, entry: TimelineEntry, begun: TimelineEntry | None) -> None:
        _, context, parent = self._open.pop(id(begun), (None, None, b"")) if begun is not None else (None, None, b"")
        if context is None and (above := self._above(entry)) is not None:
            context, parent = spans.context_of(above.trace, entry), above.span
        if context is not None and spans.has_span(entry):
            self._node.sink(spans.span_of(self._pod, entry, context, parent))
        if entry.what.kind is (ActivityKind.SHOWN_READY if self._node.tells else ActivityKind.READY):
            self.start_ended()

    def within(self, entry: TimelineEntry) -> AbstractContextManager[None]:
        _, context, _ = self._open.get(id(entry), (None, None, b""))
        return working_for(context)

    def context_of(self, what: Activity) -> SpanContext | None:
        """The span of this step, which is under way; the newest if there are several."""
        return next((context for one, context, _ in reversed(self._open.values()) if one == what), None)

    def _above(self, entry: TimelineEntry) -> SpanContext | None:
        """The span that this entry is a part of. None: it is in no trace, as what happens between later plans."""
        if entry.of is not None and (context := self.context_of(entry.of)) is not None:
            return context
        kind = entry.what.kind
        if self._starting and kind in (*_BESIDE_PLANS, ActivityKind.PULL):  # a pull outlives the plan that began it
            return self._pod.root
        if self._sync is not None and kind not in _BESIDE_PLANS:
            return self._sync.context
        return self._pod.root if self._starting else None
