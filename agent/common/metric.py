"""How a metric is declared: a field of a class of metrics, which read from one agent's is that agent's series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

PROBES = "/metrics/probes"
GO_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # upstream's, where it names none


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as upstream declares it. Read from a `Metrics`, it is that agent's Counter, Gauge or Histogram.

    prometheus_client adds `_total` to a counter's name. `buckets` None: the library's.
    """

    kind: Callable[..., Any]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] | None = None
    stability: str = "ALPHA"
    endpoint: str = "/metrics"

    def __get__(self, metrics: Any, owner: type) -> Any:
        return self if metrics is None else metrics.series[self.name]

    def make(self, registry: CollectorRegistry) -> Any:
        buckets = {} if self.buckets is None else {"buckets": self.buckets}
        return self.kind(self.name, self.help, self.labels, registry=registry, **buckets)
