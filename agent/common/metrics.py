"""The agent's own metrics, each declared once, under upstream's names (pkg/kubelet/metrics, pkg/kubelet/prober).

Those of admission, of what plugins and hooks do, and of resizes are in pod_metrics.py.

Code that measures something gets the agent's `Metrics` and uses its fields as any other Counter, Gauge or Histogram.
Values that are counted only when somebody scrapes come from collectors in the rooms they are about; agent/build
registers those. process_* metrics come from prometheus_client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from agent.common.metric import PROBES, Metric
from agent.common.model.pods import Kind
from agent.common.pod_metrics import PodMetrics
from nodelib.traces.counters import DROPPED, EXPORTED

# They begin at 25 ms: upstream's first bucket (0.5 s) is beyond what a pod needs here.
_POD_START = (
    0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75,
    1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 600, 1800, 3600,
)  # fmt: skip
_STORAGE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_IMAGE_PULL = (1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_MB, _GB = 1 << 20, 1 << 30
_IMAGE_SIZES = (
    (100 * _GB, "GT100GB"), (60 * _GB, "60GB-100GB"), (40 * _GB, "40GB-60GB"), (30 * _GB, "30GB-40GB"),
    (20 * _GB, "20GB-30GB"), (10 * _GB, "10GB-20GB"), (5 * _GB, "5GB-10GB"), (_GB, "1GB-5GB"),
    (500 * _MB, "500MB-1GB"), (100 * _MB, "100MB-500MB"), (10 * _MB, "10MB-100MB"), (0, "0-10MB"),
)  # fmt: skip
CONTAINER_TYPES = {Kind.INIT: "init_container", Kind.MAIN: "container", Kind.EPHEMERAL: "ephemeral_container"}


# prometheus_client ends the name of each counter in _total; upstream has these without it, and so do people's alerts.
_WITHOUT_TOTAL = re.compile(
    rb"\b(kubelet_evictions|kubelet_preemptions|kubelet_certificate_manager_client_expiration_renew_errors"
    rb"|kubelet_server_expiration_renew_errors"
    rb"|kubelet_pod_resources_endpoint_(?:requests|errors)_(?:list|get|get_allocatable)"
    rb"|kubelet_container_aligned_compute_resources_(?:failure_)?count)_total\b"
)


def exposition(registry: CollectorRegistry) -> bytes:
    """The text that scrapers read, with upstream's names."""
    return _WITHOUT_TOTAL.sub(rb"\1", generate_latest(registry))


def image_size_class(size: int) -> str:
    """Upstream's label of an image's size in bytes; 0: not known."""
    return next((label for least, label in _IMAGE_SIZES if size > least), "N/A")


class Metrics(PodMetrics):
    """One agent's metrics: `registry` is for /metrics, `probe_registry` for /metrics/probes. Times are in seconds."""

    node_name = Metric(Gauge, "kubelet_node_name", "The node's name. The count is always 1.", ("node",))
    build_info = Metric(
        Gauge, "kubernetes_build_info",
        "A metric with a constant '1' value labeled by the version that this kubelet reports.",
        ("git_version",), stability="BETA",
    )  # fmt: skip
    pod_start_duration = Metric(
        Histogram, "kubelet_pod_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
        buckets=_POD_START,
    )  # fmt: skip
    pod_start_sli_duration = Metric(
        Histogram, "kubelet_pod_start_sli_duration_seconds",
        "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod "
        "creation timestamp to when all its containers are reported as started and observed via watch",
        buckets=_POD_START,
    )  # fmt: skip
    pod_start_total_duration = Metric(
        Histogram, "kubelet_pod_start_total_duration_seconds",
        "Duration in seconds to start a pod since creation, including time to pull images and run init containers, "
        "measured from pod creation timestamp to when all its containers are reported as started and observed via "
        "watch",
        buckets=_POD_START,
    )  # fmt: skip
    pod_worker_duration = Metric(
        Histogram, "kubelet_pod_worker_duration_seconds",
        "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
        ("operation_type",),
    )  # fmt: skip
    pod_status_sync_duration = Metric(
        Histogram, "kubelet_pod_status_sync_duration_seconds", "Duration in seconds to sync a pod status update."
    )
    started_pods = Metric(Counter, "kubelet_started_pods", "Cumulative number of pods started")
    started_user_namespaced_pods = Metric(
        Counter, "kubelet_started_user_namespaced_pods",
        "Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
    )  # fmt: skip
    started_user_namespaced_pods_errors = Metric(
        Counter, "kubelet_started_user_namespaced_pods_errors",
        "Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on "
        "Linux.",
    )  # fmt: skip
    started_containers = Metric(
        Counter, "kubelet_started_containers", "Cumulative number of containers started", ("container_type",)
    )
    terminated_containers = Metric(
        Counter, "kubelet_terminated_containers", "Cumulative number of container terminations.",
        ("container_type", "exit_code", "reason"),
    )  # fmt: skip
    started_containers_errors = Metric(
        Counter, "kubelet_started_containers_errors", "Cumulative number of errors when starting containers",
        ("container_type", "code"),
    )  # fmt: skip
    evictions = Metric(
        Counter, "kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ("eviction_signal",)
    )
    runtime_operations = Metric(
        Counter, "kubelet_runtime_operations", "Cumulative number of runtime operations by operation type.",
        ("operation_type",),
    )  # fmt: skip
    runtime_operations_errors = Metric(
        Counter, "kubelet_runtime_operations_errors",
        "Cumulative number of runtime operation errors by operation type.", ("operation_type",),
    )  # fmt: skip
    runtime_operations_duration = Metric(
        Histogram, "kubelet_runtime_operations_duration_seconds",
        "Duration in seconds of runtime operations. Broken down by operation type.", ("operation_type",),
    )  # fmt: skip
    image_pull_duration = Metric(
        Histogram, "kubelet_image_pull_duration_seconds", "Duration in seconds to pull an image.",
        ("image_size_in_bytes",), _IMAGE_PULL,
    )  # fmt: skip
    graceful_shutdown_start_time = Metric(
        Gauge, "kubelet_graceful_shutdown_start_time_seconds",
        "Last graceful shutdown start time since unix epoch in seconds",
    )  # fmt: skip
    graceful_shutdown_end_time = Metric(
        Gauge, "kubelet_graceful_shutdown_end_time_seconds",
        "Last graceful shutdown end time since unix epoch in seconds",
    )  # fmt: skip
    image_garbage_collected = Metric(
        Counter, "kubelet_image_garbage_collected", "Total number of images garbage collected by the kubelet.",
        ("reason",),
    )  # fmt: skip
    pleg_relist_duration = Metric(
        Histogram, "kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods."
    )
    pleg_relist_interval = Metric(
        Histogram, "kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG."
    )
    pleg_last_seen = Metric(
        Gauge, "kubelet_pleg_last_seen_seconds", "Timestamp in seconds when the pods were last relisted."
    )
    container_log_rotations = Metric(
        Counter, "kubelet_container_log_rotations", "Cumulative number of container logs that were rotated."
    )
    started_pods_errors = Metric(
        Counter, "kubelet_started_pods_errors", "Cumulative number of errors when starting pods"
    )
    run_podsandbox_duration = Metric(
        Histogram, "kubelet_run_podsandbox_duration_seconds",
        "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        ("runtime_handler",),
    )  # fmt: skip
    run_podsandbox_errors = Metric(
        Counter, "kubelet_run_podsandbox_errors",
        "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.", ("runtime_handler",),
    )  # fmt: skip
    containers_per_pod = Metric(
        Histogram, "kubelet_containers_per_pod_count", "The number of containers per pod.", buckets=(1, 2, 4, 8, 16)
    )
    ensure_image_requests = Metric(
        Counter, "kubelet_image_manager_ensure_image_requests",
        "Number of ensure-image requests processed by the kubelet.",
        ("pull_policy", "present_locally", "pull_required"),
    )  # fmt: skip
    cgroup_version = Metric(Gauge, "kubelet_cgroup_version", "cgroup version on the hosts.")
    cgroup_manager_duration = Metric(
        Histogram, "kubelet_cgroup_manager_duration_seconds",
        "Duration in seconds for cgroup manager operations. Broken down by method.", ("operation_type",),
    )  # fmt: skip
    storage_operation_duration = Metric(
        Histogram, "storage_operation_duration_seconds", "Storage operation duration",
        ("migrated", "operation_name", "status", "volume_plugin"), _STORAGE,
    )  # fmt: skip
    limited_pods = Metric(
        Gauge, "nodewright_connections_limited_pods",
        "Number of pods that may begin few connections, as the node's table of connections is nearly full",
    )  # fmt: skip
    deleted_connections = Metric(
        Counter, "nodewright_connections_deleted",
        "Cumulative number of tracked connections of pods that were deleted because they were more than the pod's part",
    )  # fmt: skip
    refused_connections = Metric(
        Counter, "nodewright_connections_refused_packets",
        "Cumulative number of packets for new connections that were refused while the table of connections was crowded",
    )  # fmt: skip
    spans_exported = Metric(Counter, *EXPORTED)
    spans_dropped = Metric(Counter, *DROPPED, ("reason",))
    prober_probe = Metric(
        Counter, "prober_probe",
        "Cumulative number of a liveness, readiness or startup probe for a container by result.",
        ("probe_type", "result", "container", "pod", "namespace", "pod_uid"), stability="BETA", endpoint=PROBES,
    )  # fmt: skip
    probes_start_time = Metric(
        Gauge, "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", endpoint=PROBES,
    )  # fmt: skip
    prober_probe_duration = Metric(
        Histogram, "prober_probe_duration_seconds", "Duration in seconds for a probe response.",
        ("probe_type", "container", "pod", "namespace"), endpoint=PROBES,
    )  # fmt: skip

    def __init__(self, node_name: str, version: str) -> None:
        # The text format has no place for the times when series were created: each would be a metric of its own.
        disable_created_metrics()
        self.registry, self.probe_registry = CollectorRegistry(), CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.series = {
            metric.name: metric.make(self.probe_registry if metric.endpoint == PROBES else self.registry)
            for owner in (Metrics, PodMetrics)
            for metric in vars(owner).values()
            if isinstance(metric, Metric)
        }
        self.node_name.labels(node_name).set(1)
        self.build_info.labels(version).set(1)
        for static in ("true", ""):
            self.restarted_pods.labels(static)
        self.probes_start_time.set(time.time())
        self._relisted_at = 0.0

    @contextmanager
    def runtime_operation(self, kind: str) -> Iterator[None]:
        """Count and time one CRI call; `kind` as upstream's operation_type, e.g. "run_podsandbox"."""
        self.runtime_operations.labels(kind).inc()
        started = time.monotonic()
        try:
            yield
        except Exception:
            self.runtime_operations_errors.labels(kind).inc()
            raise
        finally:
            self.runtime_operations_duration.labels(kind).observe(time.monotonic() - started)

    @contextmanager
    def cgroup_operation(self, kind: str) -> Iterator[None]:
        """Time one operation on a cgroup: "create", "update" or "destroy"."""
        with self.cgroup_manager_duration.labels(kind).time():
            yield

    def storage_operation(self, plugin: str, operation: str, seconds: float) -> None:
        """An operation on a volume that has succeeded; `plugin` as in kubernetes.io/csi:driver."""
        self.storage_operation_duration.labels("false", operation, "success", plugin).observe(seconds)

    @contextmanager
    def running_sandbox(self, handler: str) -> Iterator[None]:
        """Count and time one sandbox of a runtime handler."""
        with self.run_podsandbox_duration.labels(handler).time():
            try:
                yield
            except Exception:
                self.run_podsandbox_errors.labels(handler).inc()
                raise

    def relisted(self, seconds: float, now: float) -> None:
        """Listing all pods took `seconds` and ended at `now` (wall clock)."""
        self.pleg_relist_duration.observe(seconds)
        if self._relisted_at:
            self.pleg_relist_interval.observe(now - self._relisted_at)
        self._relisted_at = now
        self.pleg_last_seen.set(now)
