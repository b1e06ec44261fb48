"""Counted of pods' admission, of plugins and hooks, and of resizes, under upstream's names (pkg/kubelet/metrics).

Labels of names that users choose are bounded by whoever counts: anybody can register, or be refused for, anything.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from agent.common.metric import GO_BUCKETS, Metric

_RESIZE_MS = (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)
_DEFERRED = (5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600)


class PodMetrics:
    """Fields of Metrics (metrics.py)."""

    admission_rejections = Metric(
        Counter, "kubelet_admission_rejections", "Cumulative number pod admission rejections by the Kubelet.",
        ("reason",),
    )  # fmt: skip
    preemptions = Metric(
        Counter, "kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource",
        ("preemption_signal",),
    )  # fmt: skip
    pod_level_resources_admission = Metric(
        Counter, "kubelet_pod_level_resources_admission",
        "Total number of pods admitted during Kubelet admission, categorized by resource configuration mode "
        "(pod_and_container_level, pod_level, container_level, or empty for unconfigured/BestEffort) and QoS class.",
        ("config_mode", "qos_class"),
    )  # fmt: skip
    pod_worker_start_duration = Metric(
        Histogram, "kubelet_pod_worker_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod to starting a worker.", buckets=GO_BUCKETS,
    )  # fmt: skip
    restarted_pods = Metric(
        Counter, "kubelet_restarted_pods",
        "Number of pods that have been restarted because they were deleted and recreated with the same UID while the "
        "kubelet was watching them (common for static pods, extremely uncommon for API pods)",
        ("static",),
    )  # fmt: skip
    orphaned_runtime_pods = Metric(
        Counter, "kubelet_orphaned_runtime_pods",
        "Number of pods that have been detected in the container runtime without being already known to the pod "
        "worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in "
        "the local configuration, which is unusual.",
    )  # fmt: skip
    sleep_terminated = Metric(
        Counter, "kubelet_sleep_action_terminated_early",
        "The number of times lifecycle sleep handler got terminated before it finishes",
    )  # fmt: skip
    hook_http_fallbacks = Metric(
        Counter, "kubelet_lifecycle_handler_http_fallbacks",
        "The number of times lifecycle handlers successfully fell back to http from https.",
    )  # fmt: skip
    eviction_stats_age = Metric(
        Histogram, "kubelet_eviction_stats_age_seconds",
        "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
        ("eviction_signal",), GO_BUCKETS,
    )  # fmt: skip
    device_plugin_registrations = Metric(
        Counter, "kubelet_device_plugin_registration",
        "Cumulative number of device plugin registrations. Broken down by resource name.", ("resource_name",),
    )  # fmt: skip
    device_plugin_alloc_duration = Metric(
        Histogram, "kubelet_device_plugin_alloc_duration_seconds",
        "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
        ("resource_name",), GO_BUCKETS,
    )  # fmt: skip
    volume_metric_collection = Metric(
        Histogram, "kubelet_volume_metric_collection_duration_seconds", "Duration in seconds to calculate volume stats",
        ("metric_source",), GO_BUCKETS,
    )  # fmt: skip
    image_volumes_requested = Metric(
        Counter, "kubelet_image_volume_requested", "Number of requested image volumes.", stability="BETA"
    )
    image_volumes_mounted = Metric(
        Counter, "kubelet_image_volume_mounted_succeed", "Number of successful image volume mounts.", stability="BETA"
    )
    image_volumes_failed = Metric(
        Counter, "kubelet_image_volume_mounted_errors", "Number of failed image volume mounts.", stability="BETA"
    )
    credential_plugin_duration = Metric(
        Histogram, "kubelet_credential_provider_plugin_duration",
        "Duration of execution in seconds for credential provider plugin", ("plugin_name",), GO_BUCKETS,
    )  # fmt: skip
    credential_plugin_errors = Metric(
        Counter, "kubelet_credential_provider_plugin_errors", "Number of errors from credential provider plugin",
        ("plugin_name",),
    )  # fmt: skip
    cri_losing_support = Metric(
        Gauge, "kubelet_cri_losing_support",
        "the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.",
        ("version",),
    )  # fmt: skip
    container_requested_resizes = Metric(
        Counter, "kubelet_container_requested_resizes",
        "Number of requested resizes, counted at the container level. Different resources on the same container are "
        "counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one "
        "of 'add', 'remove', 'increase' or 'decrease'.", ("resource", "requirement", "operation"),
    )  # fmt: skip
    pod_resize_duration = Metric(
        Histogram, "kubelet_pod_resize_duration_milliseconds", "Duration in milliseconds to actuate a pod resize",
        ("success",), _RESIZE_MS,
    )  # fmt: skip
    pod_infeasible_resizes = Metric(
        Counter, "kubelet_pod_infeasible_resizes", "Number of infeasible resizes for pods.", ("reason_detail",)
    )
    pod_deferred_accepted_resizes = Metric(
        Counter, "kubelet_pod_deferred_accepted_resizes",
        "Cumulative number of resizes that were accepted after being deferred.", ("retry_trigger",),
    )  # fmt: skip
    pod_deferred_resize_duration = Metric(
        Histogram, "kubelet_pod_deferred_resize_duration_seconds",
        "Duration in seconds that a pod resize remains deferred before completion. Label 'priority_bucket' classifies "
        "the pod priority (system-critical: >=2000000000, high: 100000..1999999999, medium: 1..99999, normal: "
        "0/default, low: -999..-1, very-low: <=-1000, unknown: nil pod). Label 'resolution' describes how the "
        "deferred resize was resolved (accepted, reverted, terminated).",
        ("resolution", "priority_bucket"), _DEFERRED,
    )  # fmt: skip

    def device_plugin_registered(self, resource: str) -> None:
        self.device_plugin_registrations.labels(resource).inc()

    def devices_allocated(self, resource: str, seconds: float) -> None:
        """Also where the plugin failed."""
        self.device_plugin_alloc_duration.labels(resource).observe(seconds)

    def credential_plugin_ran(self, name: str, seconds: float, failed: bool) -> None:
        self.credential_plugin_duration.labels(name).observe(seconds)
        if failed:
            self.credential_plugin_errors.labels(name).inc()

    def cri_names_no_driver(self) -> None:
        """The runtime does not say its cgroup driver. The version is the one that upstream's kubelet names."""
        self.cri_losing_support.labels("1.38.0").inc()

    def volume_measured(self, source: str, seconds: float) -> None:
        """`source`: "du", "statfs" or the name of a CSI driver."""
        self.volume_metric_collection.labels(source).observe(seconds)
