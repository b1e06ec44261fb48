"""kubelet_podcertificate_states: podCertificate sources by signer and state (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric


class PodCertificateCounts:
    """A collector in the sense of prometheus_client. `states()`: how many by (signer name, state)."""

    def __init__(self, states: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._states = states

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        gauge = GaugeMetricFamily(
            "kubelet_podcertificate_states",
            "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name "
            "and state.",
            labels=["signer_name", "state"],
        )
        for labels, count in sorted(self._states().items()):
            gauge.add_metric(list(labels), count)
        yield gauge
