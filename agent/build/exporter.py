"""Makes what sends spans to a collector, where `tracing` asks for it. Otherwise nothing of it is imported or run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agent.common.metrics import Metrics
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.traces.export import Exporter

_SERVICE = "kubelet"  # upstream's service.name (componentKubelet in cmd/kubelet/app/server.go)


def build_exporter(settings: Settings, clock: Clock, metrics: Metrics) -> Exporter | None:
    """None: nothing is sampled, as upstream without a samplingRatePerMillion."""
    tracing = settings.tracing
    if not tracing.per_million:
        return None
    from nodelib.traces.daemon import exporter_to

    return exporter_to(
        tracing.endpoint,
        _SERVICE,
        settings.node.name,
        clock,
        metrics.spans_exported.inc,
        lambda reason, count: metrics.spans_dropped.labels(reason).inc(count),
    )


def traced_cri(exporter: Exporter | None) -> Callable[[Any], Any]:
    """Makes a channel to the runtime that hands on the current span, and whose calls are spans, of an ordinary one."""
    if exporter is None:
        return lambda channel: channel
    from agent.runtime.edge.traced_calls import TracedChannel

    return partial(TracedChannel, sink=exporter.add_later)
