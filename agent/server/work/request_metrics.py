"""Metrics of the server's own requests, with upstream's names (pkg/kubelet/server/metrics)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nodelib.clock import Clock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LABELS = ("method", "path", "server_type", "long_running")
_METHODS = {"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"}
_PATHS = {
    "healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "run", "exec",
    "attach", "portForward", "containerLogs", "configz", "runningpods", "checkpoint", "logs", "debug",
    "statusz", "flagz", "why", "images", "allocatedPods",
}  # fmt: skip
_LONG_RUNNING = {"exec", "attach", "portforward", "debug"}


class RequestMetrics:
    """Counts requests. One instance serves all listeners of a registry."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._total = Counter(
            "kubelet_http_requests", "Number of the http requests received since the server started", _LABELS,
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "kubelet_http_requests_duration_seconds", "Duration in seconds to serve http requests", _LABELS,
            registry=registry,
        )  # fmt: skip
        self._inflight = Gauge(
            "kubelet_http_inflight_requests", "Number of the inflight http requests", _LABELS, registry=registry
        )

    def filter(self, server_type: str) -> Middleware:
        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            path = _bucket(request.path)
            method = request.method if request.method in _METHODS else "other"
            labels = (method, path, server_type, str(path in _LONG_RUNNING).lower())
            self._total.labels(*labels).inc()
            inflight = self._inflight.labels(*labels)
            inflight.inc()
            started = self._clock.monotonic()
            try:
                return await handler(request)
            finally:
                inflight.dec()
                self._seconds.labels(*labels).observe(self._clock.monotonic() - started)

        return count


def _bucket(path: str) -> str:
    parts = path.removeprefix("/").split("/", 2)
    root = "/".join(parts[:2]) if parts[0] == "metrics" and len(parts) > 1 else parts[0]
    return root if root in _PATHS else "other"
