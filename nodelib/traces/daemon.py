"""The exporter of one daemon of a node, and the tracer of a daemon that is told to trace by its flags.

Import it where spans are exported.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from nodelib.clock import Clock
from nodelib.tasks import Supervisor, cancel_and_wait
from nodelib.traces.counters import DROPPED, EXPORTED
from nodelib.traces.export import DELAY, Exporter, Sender
from nodelib.traces.settings import TracingSettings, delay
from nodelib.traces.steps import Tracer
from nodelib.version import KUBERNETES_VERSION

_FLUSH_LIMIT = 1.0  # seconds for the spans that wait at the end of a daemon, which are not worth more


def exporter_to(
    endpoint: str,
    service: str,
    node: str,
    clock: Clock,
    exported: Callable[[int], None],
    dropped: Callable[[str, int], None],
) -> Exporter:
    """`service`: the program's name for OpenTelemetry, `node` that of its Node."""

    def connect() -> Sender:
        from nodelib.traces.senders import sender_for

        return sender_for(endpoint)

    resource = {
        "service.name": service,
        "service.version": KUBERNETES_VERSION,
        "service.instance.id": node,
        "host.name": node,
        "k8s.node.name": node,
    }
    return Exporter(connect, resource, clock, exported, dropped, delay(os.environ, DELAY))


def start_tracing(
    settings: TracingSettings,
    service: str,
    node: str,
    supervisor: Supervisor,
    registry: CollectorRegistry,
    clock: Clock,
) -> Tracer:
    """Spans are sent as long as `supervisor` runs, and counted in `registry`."""
    exported = Counter(*EXPORTED, registry=registry)
    dropped = Counter(*DROPPED, ("reason",), registry=registry)
    exporter = exporter_to(
        settings.endpoint,
        service,
        node,
        clock,
        exported.inc,
        lambda reason, count: dropped.labels(reason).inc(count),
    )
    task = supervisor.spawn("traces", exporter.run)

    async def end() -> None:
        await cancel_and_wait(task)
        await exporter.close(_FLUSH_LIMIT)

    supervisor.on_stop("traces", end)
    return Tracer(exporter.add, settings.per_million, clock)
