"""The spans of one family's syncs. Upstream's proxy has none; docs/traces.md lists them."""

from __future__ import annotations

from nodelib.traces.steps import OpenSpan, QueuedTraces, Tracer
from proxy.plan import spans
from proxy.plan.tracker import Changes

SERVICE = "kube-proxy"  # service.name


class SyncTracing(QueuedTraces):
    """Begins the trace of a sync with the first change that it takes."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, spans.SYNC)


def describe(span: OpenSpan, changes: Changes, *, full: bool, endpoints: int, mode: str) -> None:
    """What a sync has taken. One that changes nothing is no trace."""
    span.attributes |= spans.attributes(changes, full=full, endpoints=endpoints, mode=mode)
    if not full and not changes.ports:
        span.drop()


def tell_programmed(span: OpenSpan, changes: Changes, now: float) -> None:
    """The kernel has it, at the wall time `now`. These parts of the sync began before it."""
    for service, since in spans.programmed(changes):
        span.record(
            spans.PROGRAMMING,
            min(since, now),  # whoever writes EndpointSlices writes the time, too
            max(0.0, now - since),
            **{
                "k8s.namespace.name": service.namespace,
                "k8s.service.name": service.name,
                "nodewright.precision": "1s",
            },
        )
