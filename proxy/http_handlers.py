"""The proxy's HTTP handlers: /healthz and /livez on one port; /metrics, /proxyMode and /configz on another."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from nodelib.clock import Clock
from nodelib.daemons.http_server import Handler, json_response, serve, text_response
from proxy.config.effective import GROUP, document
from proxy.config.settings import Settings
from proxy.edge.metrics import Metrics
from proxy.health import Health


async def serve_health(settings: Settings, health: Health, metrics: Metrics, clock: Clock) -> None:
    """Until cancelled. Raises Temporary when the port cannot be had."""
    assert settings.healthz is not None
    routes = health_routes(health, metrics, clock)
    await serve(routes, settings.healthz.host, settings.healthz.port, "healthz server")


async def serve_metrics(settings: Settings, metrics: Metrics) -> None:
    """Until cancelled. Raises Temporary when the port cannot be had."""
    assert settings.metrics is not None
    await serve(metrics_routes(settings, metrics), settings.metrics.host, settings.metrics.port, "metrics server")


def health_routes(health: Health, metrics: Metrics, clock: Clock) -> Mapping[str, Handler]:
    """/healthz says whether the node should get traffic, /livez only whether the proxy is healthy."""

    async def healthz(_: web.Request) -> web.Response:
        healthy, body = health.report(clock.steady(), with_node=True, ahead=clock.now() - clock.steady())
        metrics.healthz.labels("200" if healthy else "503").inc()
        return json_response(body, 200 if healthy else 503)

    async def livez(_: web.Request) -> web.Response:
        healthy, body = health.report(clock.steady(), with_node=False, ahead=clock.now() - clock.steady())
        metrics.livez.labels("200" if healthy else "503").inc()
        return json_response(body, 200 if healthy else 503)

    return {"/healthz": healthz, "/livez": livez}


def metrics_routes(settings: Settings, metrics: Metrics) -> Mapping[str, Handler]:
    """As upstream's serveMetrics (cmd/kube-proxy/app/server.go), without profiling."""

    async def prometheus_text(_: web.Request) -> web.Response:
        return text_response(metrics.text())

    async def ok(_: web.Request) -> web.Response:
        return text_response("ok")

    async def mode(_: web.Request) -> web.Response:
        return text_response(settings.mode)

    async def configz(_: web.Request) -> web.Response:
        return json_response({GROUP: document(settings)})

    return {"/metrics": prometheus_text, "/healthz": ok, "/proxyMode": mode, "/configz": configz}
