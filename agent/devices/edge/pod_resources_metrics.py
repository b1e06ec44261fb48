"""Requests to the podresources API, with upstream's names and labels (pkg/kubelet/metrics)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

_METHODS = {"List": "list", "GetAllocatableResources": "get_allocatable", "Get": "get"}
_VERSION = ["server_api_version"]


class PodResourcesMetrics:
    """Series exist from the first request on, for the versions that are asked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all = Counter(
            "kubelet_pod_resources_endpoint_requests_total",
            "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
            _VERSION,
            registry=registry,
        )
        self._requests, self._errors = (
            {
                method: Counter(
                    f"kubelet_pod_resources_endpoint_{kind}_{name}",
                    f"Number of requests to the PodResource {method} endpoint{text}. "
                    "Broken down by server api version.",
                    _VERSION,
                    registry=registry,
                )
                for method, name in _METHODS.items()
            }
            for kind, text in (("requests", ""), ("errors", " which returned error"))
        )

    def asked(self, version: str, method: str) -> None:
        self._all.labels(version).inc()
        self._requests[method].labels(version).inc()

    def failed(self, version: str, method: str) -> None:
        self._errors[method].labels(version).inc()
