"""Metrics of the node's own certificates under upstream's names (pkg/kubelet/certificate, kubelet.go)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True)
class CertificateMetrics:
    """`ttl`: seconds until the certificate expires, infinite without one. `failures`: renewals that failed."""

    ttl: float = math.inf
    failures: int = 0


class CertificateCollector:
    """A prometheus_client collector that reads the values when it is scraped."""

    def __init__(self, client: Callable[[], CertificateMetrics], server: Callable[[], CertificateMetrics]) -> None:
        self._client, self._server = client, server

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        client, server = self._client(), self._server()
        yield GaugeMetricFamily(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Gauge of the TTL (time-to-live) of the Kubelet's client certificate, in seconds until it expires "
            "(negative if already expired), +Inf if there is none.",
            client.ttl,
        )
        yield GaugeMetricFamily(
            "kubelet_certificate_manager_server_ttl_seconds",
            "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate, in seconds until it "
            "expires (negative if already expired), +Inf if it is not from the cluster.",
            server.ttl,
        )
        yield CounterMetricFamily(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Counter of certificate renewal errors.",
            client.failures,
        )
        yield CounterMetricFamily(
            "kubelet_server_expiration_renew_errors", "Counter of certificate renewal errors.", server.failures
        )
