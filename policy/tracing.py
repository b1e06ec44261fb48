"""The spans of syncs, and of pods that wait for their policies. docs/traces.md lists them."""

from __future__ import annotations

from collections.abc import Iterable

from nodelib.json_values import Json
from nodelib.text import one_line
from nodelib.traces.model import SpanContext, sampled_parent
from nodelib.traces.steps import NOT_TRACED, OpenSpan, QueuedTraces, Step, Tracer
from policy.model import Name
from policy.plan import changed

SERVICE = "nodewright-policy"  # service.name
SYNC, WAIT = "sync policies", "wait for network policies"
_WORDS = 1024  # bytes of an error


class PolicyTracing(QueuedTraces):
    """Begins the trace of a sync with the first change that it takes. A pod's wait is part of the trace of its start,
    as the pod network says in its question."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYNC)
        self._newest: SpanContext | None = None

    def begin(self) -> Step:
        made = super().begin()
        self._newest = made.context if isinstance(made, OpenSpan) else None
        return made

    def drop(self, span: OpenSpan) -> None:
        """The sync changes nothing: it is no trace."""
        self._newest = None
        span.drop()

    def wait(self, question: Json) -> Step:
        """A pod's ADD waits from now on, until the block ends."""
        parent = sampled_parent(question.get("traceparent"))
        return NOT_TRACED if parent is None else self._tracer.within(parent, WAIT)

    def waited(self, span: OpenSpan, pod: Name, uid: str, answer: Json) -> None:
        """What the wait was for, and how it ends. The sync that put the policies in force is a trace of its own."""
        span.attributes |= {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name, "k8s.pod.uid": uid}
        if answer.get("protected") is not True:
            span.error = one_line(str(answer.get("error", "")), _WORDS) or "not in force"
        elif self._newest is not None:
            span.links = (self._newest,)


def describe(span: OpenSpan, changes: int, programs: Iterable[changed.Pair]) -> None:
    """What the sync writes."""
    span.attributes |= changed.attributes(changes, programs)
