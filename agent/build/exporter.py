"""Makes what sends spans to a collector, where `tracing` asks for it. Otherwise nothing of it is imported or run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.common.metrics import Metrics
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.traces.export import Exporter, Sender
from nodelib.version import KUBERNETES_VERSION

_SERVICE = "kubelet"  # upstream's service.name (componentKubelet in cmd/kubelet/app/server.go)


def build_exporter(settings: Settings, clock: Clock, metrics: Metrics) -> Exporter | None:
    """None: nothing is sampled, as upstream without a samplingRatePerMillion."""
    tracing = settings.tracing
    if not tracing.per_million:
        return None

    def connect() -> Sender:
        from nodelib.traces.senders import sender_for

        return sender_for(tracing.endpoint)

    resource = {
        "service.name": _SERVICE,
        "service.version": KUBERNETES_VERSION,
        "service.instance.id": settings.node.name,
        "host.name": settings.node.name,
    }
    return Exporter(
        connect,
        resource,
        clock,
        metrics.spans_exported.inc,
        lambda reason, count: metrics.spans_dropped.labels(reason).inc(count),
    )


def cri_interceptors(exporter: Exporter | None) -> Sequence[Any]:
    """What hands the current span to the runtime, and makes a span of each call."""
    if exporter is None:
        return ()
    from agent.runtime.edge.traced_calls import TracedCalls

    return (TracedCalls(exporter.add),)
