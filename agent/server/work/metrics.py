"""/metrics, /metrics/{cadvisor,probes,resource} and /stats/summary, collected when a client asks for them."""

from __future__ import annotations

import asyncio

from aiohttp import web
from prometheus_client import CollectorRegistry

from agent.common.metrics import exposition
from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import Refused, json
from agent.stats.plan import resource_metrics as stats_metrics
from agent.stats.plan import summary as stats
from agent.stats.work.provider import StatsProvider

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoints:
    """The endpoints that scrapers, metrics-server and `kubectl top` read."""

    def __init__(self, deps: ServerDeps) -> None:
        self._deps = deps

    async def metrics(self, request: web.Request) -> web.Response:
        return await _exposition(self._deps.registry)

    async def probes(self, request: web.Request) -> web.Response:
        if self._deps.probe_registry is None:
            raise Refused(404, "this kubelet keeps no probe metrics\n")
        return await _exposition(self._deps.probe_registry)

    async def resource(self, request: web.Request) -> web.Response:
        return _text(stats_metrics.resource(await self._provider().snapshot()))

    async def cadvisor(self, request: web.Request) -> web.Response:
        provider = self._provider()
        snapshot = await provider.with_layers(await provider.snapshot())
        return _text(stats_metrics.cadvisor(snapshot, await provider.details(snapshot)))

    async def summary(self, request: web.Request) -> web.Response:
        brief = request.query.get("only_cpu_and_memory") == "true"
        snapshot = await self._provider().snapshot(storage=not brief, rates=True)
        return json(stats.summary(snapshot, only_cpu_and_memory=brief))

    def _provider(self) -> StatsProvider:
        if self._deps.stats is None:
            raise Refused(503, "this kubelet was started without a stats provider\n")
        return self._deps.stats


async def _exposition(registry: CollectorRegistry) -> web.Response:
    return _text(await asyncio.to_thread(exposition, registry))


def _text(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": _TEXT})
