"""The agent's Prometheus metrics: upstream's names, labels and help where we have the figure (pkg/kubelet/metrics).

Pod start buckets begin at 25 ms: upstream's first one (0.5 s) is beyond what a pod needs here.
Process figures (process_cpu_seconds_total, process_resident_memory_bytes) come with the registry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric

from agent.common.metrics_port import ProbeLabels
from agent.common.model.pods import Kind, PodStage
from agent.common.ports import PodView
from agent.pods.edge.pod_counts import PodCounts

_START = (
    0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75,
    1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 600, 1800, 3600,
)  # fmt: skip
_PULL = (1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)


_KINDS = {Kind.INIT: "init_container", Kind.MAIN: "container", Kind.EPHEMERAL: "ephemeral_container"}
_MB, _GB = 1 << 20, 1 << 30
_SIZES = (
    (100 * _GB, "GT100GB"), (60 * _GB, "60GB-100GB"), (40 * _GB, "40GB-60GB"), (30 * _GB, "30GB-40GB"),
    (20 * _GB, "20GB-30GB"), (10 * _GB, "10GB-20GB"), (5 * _GB, "5GB-10GB"), (_GB, "1GB-5GB"),
    (500 * _MB, "500MB-1GB"), (100 * _MB, "100MB-500MB"), (10 * _MB, "10MB-100MB"), (0, "0-10MB"),
)  # fmt: skip


class Metrics:
    """Make one in the composition root. `registry` is for /metrics, `probe_registry` for /metrics/probes."""

    def __init__(self, node_name: str, version: str) -> None:
        # The text format has no place for them: each would be a metric of its own.
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()
        self.probe_registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Gauge("kubelet_node_name", "The node's name. The count is always 1.", ["node"], registry=registry).labels(
            node_name
        ).set(1)
        Gauge(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by the version that this kubelet reports.",
            ["git_version"],
            registry=registry,
        ).labels(version).set(1)
        self._pods(registry)
        self._runtime(registry)
        self.probe_total = Counter(
            "prober_probe",
            "Cumulative number of a liveness, readiness or startup probe for a container by result.",
            ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
            registry=self.probe_registry,
        )
        self.probe_seconds = Histogram(
            "prober_probe_duration_seconds",
            "Duration in seconds for a probe response.",
            ["probe_type", "container", "pod", "namespace"],
            registry=self.probe_registry,
        )

    def _pods(self, registry: CollectorRegistry) -> None:
        self.pod_start = Histogram(
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            buckets=_START,
            registry=registry,
        )
        self.pod_start_sli = Histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured "
            "from pod creation timestamp to when all its containers are reported as started and observed via watch",
            buckets=_START,
            registry=registry,
        )
        self.pod_start_total = Histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Duration in seconds to start a pod since creation, including time to pull images and run init "
            "containers, measured from pod creation timestamp to when all its containers are reported as started and "
            "observed via watch",
            buckets=_START,
            registry=registry,
        )
        self.pod_worker = Histogram(
            "kubelet_pod_worker_duration_seconds",
            "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
            ["operation_type"],
            registry=registry,
        )
        self.status_sync = Histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "Duration in seconds to sync a pod status update.",
            registry=registry,
        )
        self.started_pods = Counter("kubelet_started_pods", "Cumulative number of pods started", registry=registry)
        self.started_containers = Counter(
            "kubelet_started_containers", "Cumulative number of containers started", ["container_type"],
            registry=registry,
        )  # fmt: skip
        self.started_containers_errors = Counter(
            "kubelet_started_containers_errors",
            "Cumulative number of errors when starting containers",
            ["container_type", "code"],
            registry=registry,
        )
        self.evictions = Counter(
            "kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ["eviction_signal"],
            registry=registry,
        )  # fmt: skip

    def _runtime(self, registry: CollectorRegistry) -> None:
        self.runtime_total = Counter(
            "kubelet_runtime_operations", "Cumulative number of runtime operations by operation type.",
            ["operation_type"], registry=registry,
        )  # fmt: skip
        self.runtime_errors = Counter(
            "kubelet_runtime_operations_errors", "Cumulative number of runtime operation errors by operation type.",
            ["operation_type"], registry=registry,
        )  # fmt: skip
        self.runtime_seconds = Histogram(
            "kubelet_runtime_operations_duration_seconds",
            "Duration in seconds of runtime operations. Broken down by operation type.",
            ["operation_type"],
            registry=registry,
        )
        self.image_pull_seconds = Histogram(
            "kubelet_image_pull_duration_seconds", "Duration in seconds to pull an image.", ["image_size_in_bytes"],
            buckets=_PULL, registry=registry,
        )  # fmt: skip
        self.shutdown_began = Gauge(
            "kubelet_graceful_shutdown_start_time_seconds",
            "Last graceful shutdown start time since unix epoch in seconds",
            registry=registry,
        )
        self.shutdown_ended = Gauge(
            "kubelet_graceful_shutdown_end_time_seconds",
            "Last graceful shutdown end time since unix epoch in seconds",
            registry=registry,
        )
        self.images_removed = Counter(
            "kubelet_image_garbage_collected", "Total number of images garbage collected by the kubelet.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.relist_seconds = Histogram(
            "kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods.", registry=registry
        )
        self.relist_interval = Histogram(
            "kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", registry=registry
        )
        self._relisted_at = 0.0
        self.relist_seen = Gauge(
            "kubelet_pleg_last_seen_seconds", "Timestamp in seconds when the pods were last relisted.",
            registry=registry,
        )  # fmt: skip
        self.log_rotations = Counter(
            "kubelet_container_log_rotations", "Cumulative number of container logs that were rotated.",
            registry=registry,
        )  # fmt: skip

    @contextmanager
    def runtime_operation(self, kind: str) -> Iterator[None]:
        """Count and time one CRI call; `kind` as upstream's operation_type, e.g. "run_podsandbox"."""
        self.runtime_total.labels(kind).inc()
        started = time.monotonic()
        try:
            yield
        except Exception:
            self.runtime_errors.labels(kind).inc()
            raise
        finally:
            self.runtime_seconds.labels(kind).observe(time.monotonic() - started)

    # --- agent.common.metrics_port.Figures

    def pod_running(self, seconds: float) -> None:
        self.pod_start.observe(seconds)

    def pod_started(self, total: float, sli: float | None) -> None:
        self.pod_start_total.observe(total)
        if sli is not None:
            self.pod_start_sli.observe(sli)

    def pod_synced(self, operation: str, seconds: float) -> None:
        self.pod_worker.labels(operation).observe(seconds)

    def status_sent(self, seconds: float) -> None:
        self.status_sync.observe(seconds)

    def sandbox_begun(self) -> None:
        self.started_pods.inc()

    def container_begun(self, kind: Kind) -> None:
        self.started_containers.labels(_KINDS[kind]).inc()

    def container_failed(self, kind: Kind, code: str) -> None:
        self.started_containers_errors.labels(_KINDS[kind], code).inc()

    def image_pulled(self, seconds: float, size: int) -> None:
        self.image_pull_seconds.labels(_size_class(size)).observe(seconds)

    def relisted(self, seconds: float, now: float) -> None:
        self.relist_seconds.observe(seconds)
        if self._relisted_at:
            self.relist_interval.observe(now - self._relisted_at)
        self._relisted_at = now
        self.relist_seen.set(now)

    def pod_evicted(self, signal: str) -> None:
        self.evictions.labels(signal).inc()

    def images_collected(self, reason: str, count: int) -> None:
        self.images_removed.labels(reason).inc(count)

    def shut_down(self, began: float, ended: float) -> None:
        self.shutdown_began.set(began)
        self.shutdown_ended.set(ended)

    def probed(self, labels: ProbeLabels, result: str, seconds: float) -> None:
        who = (labels.container, labels.pod, labels.namespace)
        self.probe_total.labels(labels.kind, result, *who, labels.uid).inc()
        if result != "failed":
            self.probe_seconds.labels(labels.kind, *who).observe(seconds)

    def probe_gone(self, labels: ProbeLabels) -> None:
        who = (labels.container, labels.pod, labels.namespace)
        for result in ("successful", "failed", "unknown"):
            self.probe_total.remove_by_labels(
                {"probe_type": labels.kind, "result": result, "container": who[0], "pod_uid": labels.uid}
            )
        self.probe_seconds.remove_by_labels(
            {"probe_type": labels.kind, "container": who[0], "pod": who[1], "namespace": who[2]}
        )

    # --- counted when scraped

    def watch_pods(self, pods: PodView, stages: Callable[[], Iterable[PodStage]]) -> None:
        """Let a scrape count the pods and containers of `pods`; nothing is counted in between. `stages`: of each."""
        self.registry.register(PodCounts(pods, stages))

    def watch_certificates(self, states: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """Let a scrape count podCertificate sources; `states`: how many by (signer name, state)."""
        self.registry.register(_CertificateCounts(states))


def _size_class(size: int) -> str:
    """Upstream's label of an image's size (bytes)."""
    return next((label for least, label in _SIZES if size > least), "N/A")


class _CertificateCounts:
    """A collector in the sense of prometheus_client."""

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
