"""The spans of one family's syncs. Upstream's proxy has none; docs/traces.md lists them."""

from __future__ import annotations

from nodelib.traces.steps import Moment, OpenSpan, Step, Tracer
from proxy.plan import spans
from proxy.plan.tracker import Changes

SERVICE = "kube-proxy"  # service.name


class SyncTracing:
    """Begins the trace of a sync with the first change that it takes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._since: Moment | None = None

    def queued(self) -> None:
        """A change waits for the next sync."""
        if self._since is None:
            self._since = self._tracer.moment()

    def begin(self) -> Step:
        """A sync begins: it takes all changes that wait."""
        since, self._since = self._since, None
        made = self._tracer.begin(spans.SYNC, since)
        if since is not None and isinstance(made, OpenSpan):
            _, now = self._tracer.moment()
            made.record(spans.QUEUED, since[0], now - since[1])
        return made


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
