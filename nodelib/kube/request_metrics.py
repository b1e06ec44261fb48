"""rest_client_*: the requests to the API server (k8s.io/component-base/metrics/prometheus/restclient).

A watch counts once, when it is accepted or refused, and its duration is the time until then.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # seconds
_NO_ANSWER = "<error>"


class RequestMetrics:
    """One for all clients of a process: KubeClient takes its `trace`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter(
            "rest_client_requests", "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"), registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "rest_client_request_duration_seconds", "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"), registry=registry, buckets=_BUCKETS,
        )  # fmt: skip

    @property
    def trace(self) -> aiohttp.TraceConfig:
        """What a session calls for each request."""
        made = aiohttp.TraceConfig()
        made.on_request_start.append(_begun)
        made.on_request_end.append(self._answered)
        made.on_request_exception.append(self._failed)
        return made

    async def _answered(self, _: Any, context: SimpleNamespace, end: aiohttp.TraceRequestEndParams) -> None:
        self._count(str(end.response.status), end.method, end.url, context)

    async def _failed(self, _: Any, context: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams) -> None:
        self._count(_NO_ANSWER, end.method, end.url, context)

    def _count(self, code: str, method: str, url: Any, context: SimpleNamespace) -> None:
        host = f"{url.raw_host}:{url.port}" if ":" not in (url.raw_host or "") else f"[{url.raw_host}]:{url.port}"
        self._total.labels(code, method, host).inc()
        self._seconds.labels(method, host).observe(asyncio.get_running_loop().time() - context.began)


async def _begun(_: Any, context: SimpleNamespace, __: aiohttp.TraceRequestStartParams) -> None:
    context.began = asyncio.get_running_loop().time()
