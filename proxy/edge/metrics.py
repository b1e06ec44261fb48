"""Metrics under upstream's names (pkg/proxy/metrics/metrics.go), in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, Metric

from nodelib.firewall.objects import Family
from nodelib.version import KUBERNETES_VERSION
from proxy.model import SyncReport

_FAST = tuple(0.001 * 2**power for power in range(15))
_SLOW = (
    *(0.25, 0.5),
    *[float(second) for second in range(1, 60)],
    *[float(second) for second in range(60, 120, 5)],
    *[float(second) for second in range(120, 330, 30)],
)


class Metrics:
    """All metrics of the proxy. The label ip_family is "IPv4" or "IPv6"."""

    def __init__(self) -> None:
        # The text format has no place for the times when series were created: each would be a metric of its own.
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Gauge(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by the version that this proxy reports.",
            ("git_version",),
            registry=self.registry,
        ).labels(KUBERNETES_VERSION).set(1)
        self.sync = self._histogram("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds")
        self.sync_full = self._histogram(
            "sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs"
        )
        self.sync_partial = self._histogram(
            "sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs"
        )
        self.programming = self._histogram(
            "network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds", _SLOW
        )
        self.last_sync = self._gauge(
            "sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced"
        )
        self.last_queued = self._gauge(
            "sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued"
        )
        self.no_local = self._gauge(
            "sync_proxy_rules_no_local_endpoints_total",
            "Number of services with a Local traffic policy and no endpoints",
            "traffic_policy",
            "ip_family",
        )
        self.endpoint_changes_pending = self._gauge(
            "sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes", plain=True
        )
        self.endpoint_changes = self._counter(
            "sync_proxy_rules_endpoint_changes", "Cumulative proxy rules Endpoint changes", plain=True
        )
        self.service_changes_pending = self._gauge(
            "sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes", plain=True
        )
        self.service_changes = self._counter(
            "sync_proxy_rules_service_changes", "Cumulative proxy rules Service changes", plain=True
        )
        self.rules = self._gauge(
            "sync_proxy_rules_iptables_total",
            "Total number of iptables rules owned by kube-proxy",
            "table",
            "ip_family",
        )
        self.rules_written = self._gauge(
            "sync_proxy_rules_iptables_last",
            "Number of iptables rules written by kube-proxy in last sync",
            "table",
            "ip_family",
        )
        self.restore_failures = self._counter(
            "sync_proxy_rules_iptables_restore_failures", "Cumulative proxy iptables restore failures"
        )
        self.partial_failures = self._counter(
            "sync_proxy_rules_iptables_partial_restore_failures", "Cumulative proxy iptables partial restore failures"
        )
        self.nft_failures = self._counter(
            "sync_proxy_rules_nftables_sync_failures", "Cumulative proxy nftables sync failures"
        )
        # Always 0: a chain for a number of endpoints is kept for the next Service that needs it.
        self.nft_cleanup_failures = self._counter(
            "sync_proxy_rules_nftables_cleanup_failures", "Cumulative proxy nftables cleanup failures"
        )
        self.conntrack = self._histogram(
            "conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds"
        )
        self.conntrack_deleted = self._counter(
            "conntrack_reconciler_deleted_entries", "Cumulative conntrack flows deleted by conntrack reconciler"
        )
        self.healthz = self._counter("proxy_healthz", "Cumulative proxy healthz HTTP status", "code")
        self.livez = self._counter("proxy_livez", "Cumulative proxy livez HTTP status", "code")

    def text(self) -> bytes:
        """The Prometheus text format."""
        text: bytes = generate_latest(self.registry)
        return text

    def synced(self, family: Family, report: SyncReport, seconds: float, now: float) -> None:
        """Record a successful sync that took `seconds`; `now` is in wall-clock seconds."""
        label = family.value
        self.sync.labels(label).observe(seconds)
        (self.sync_full if report.full else self.sync_partial).labels(label).observe(seconds)
        self.last_sync.labels(label).set(now)
        self.no_local.labels("internal", label).set(report.no_local_internal)
        self.no_local.labels("external", label).set(report.no_local_external)
        for table, count in report.rules_total.items():
            self.rules.labels(table, label).set(count)
        for table, count in report.rules_written.items():
            self.rules_written.labels(table, label).set(count)

    def failed(self, family: Family, mode: str, *, full: bool) -> None:
        """Record a sync that failed."""
        if mode == "nftables":
            self.nft_failures.labels(family.value).inc()
            return
        self.restore_failures.labels(family.value).inc()
        if not full:
            self.partial_failures.labels(family.value).inc()

    def add_kernel_counter(self, name: str, text: str, read: Callable[[], int | None]) -> None:
        """Add a counter that the kernel keeps. `read` is called at each scrape; None leaves the counter out."""
        self.registry.register(_KernelCounter(name, text, read))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
        return Histogram(name, text, ("ip_family",), subsystem="kubeproxy", registry=self.registry, buckets=buckets)

    def _gauge(self, name: str, text: str, *labels: str, plain: bool = False) -> Gauge:
        names = () if plain else labels or ("ip_family",)
        return Gauge(name, text, names, subsystem="kubeproxy", registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str, plain: bool = False) -> Counter:
        # The client library adds "_total" to a counter's name itself.
        names = () if plain else labels or ("ip_family",)
        return Counter(name, text, names, subsystem="kubeproxy", registry=self.registry)


class _KernelCounter:
    """A prometheus_client collector of one value that the kernel counts."""

    def __init__(self, name: str, text: str, read: Callable[[], int | None]) -> None:
        self._name, self._text, self._read = name, text, read

    def collect(self) -> Iterator[Metric]:
        value = self._read()
        if value is not None:
            yield CounterMetricFamily(self._name, self._text, value=value)

    def describe(self) -> list[Metric]:
        return [CounterMetricFamily(self._name, self._text)]
