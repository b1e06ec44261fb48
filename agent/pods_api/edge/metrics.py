"""Requests to the pods API, with upstream's names and labels (pkg/kubelet/metrics)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

_METHODS = {"ListPods": "list", "GetPod": "get", "WatchPods": "watch"}
_LABELS = ["server_api_version", "status_code"]
_VERSION = "v1alpha1"


class PodsApiMetrics:
    """Series exist from the first request on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all = Counter(
            "kubelet_pod_requests_total",
            "Cumulative number of requests to the PodsAPI endpoint. Broken down by server api version and status code.",
            _LABELS,
            registry=registry,
        )
        self._by_method = {
            method: Counter(
                f"kubelet_pod_requests_{name}_total",
                f"Number of requests to the PodsAPI {name.title()} endpoint. "
                "Broken down by server api version and status code.",
                _LABELS,
                registry=registry,
            )
            for method, name in _METHODS.items()
        }
        self._dropped = Counter(
            "kubelet_pod_watch_events_dropped_total",
            "Cumulative number of pod watch events dropped.",
            registry=registry,
        )

    def answered(self, method: str, code: str) -> None:
        """`code` as Go writes it, such as "NotFound"."""
        self._all.labels(_VERSION, code).inc()
        self._by_method[method].labels(_VERSION, code).inc()

    def dropped(self) -> None:
        self._dropped.inc()
