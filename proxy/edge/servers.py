"""HTTP servers: one way to start any of them, and the health check servers of single Services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from nodelib.errors import Temporary
from proxy.model import NamespacedName

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}


async def start(routes: Mapping[str, Handler], host: str, port: int, what: str) -> web.AppRunner:
    """Serve GET `routes` until cleanup() of the result. Raises Temporary when the port cannot be opened."""
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    # Answers take milliseconds: closing a port must not hold up a sync for a minute because a client is silent.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
    except OSError as error:
        await runner.cleanup()
        raise Temporary(
            str(error),
            obj=what,
            step=f"listen on {host}:{port}",
            action="Free the port or configure another one.",
        ) from error
    return runner


async def serve(routes: Mapping[str, Handler], host: str, port: int, what: str) -> None:
    """Serve until cancelled. Raises Temporary when the port cannot be opened."""
    runner = await start(routes, host, port, what)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(body),
        status=status,
        content_type="application/json",
        headers={**_NO_SNIFF, **(headers or {})},
    )


def text_response(text: str | bytes, content_type: str = "text/plain") -> web.Response:
    body = text.encode() if isinstance(text, str) else text
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_NO_SNIFF)


class ServiceHealthServers:
    """One server per Service with a healthCheckNodePort (upstream healthcheck/service_health.go).

    It answers 200 while this node has ready endpoints of the Service and the proxy is healthy, else 503: so a load
    balancer learns which nodes to use. `on_failure` is called with a Service whose port cannot be opened, once; every
    sync tries again.
    """

    def __init__(
        self, hosts: tuple[str, ...], healthy: Callable[[], bool], on_failure: Callable[[NamespacedName, str], None]
    ) -> None:
        self._hosts = hosts
        self._healthy = healthy
        self._on_failure = on_failure
        self._open: dict[NamespacedName, tuple[int, list[web.AppRunner]]] = {}
        self._counts: Mapping[NamespacedName, int] = {}
        self._reported: dict[NamespacedName, int] = {}

    @property
    def failing(self) -> bool:
        """Whether a port could not be opened: the next sync tries again."""
        return bool(self._reported)

    async def sync(self, ports: Mapping[NamespacedName, int], counts: Mapping[NamespacedName, int]) -> None:
        """Serve `ports`, and nothing else. `counts`: each Service's ready endpoints on this node."""
        self._counts = counts
        for name, (port, runners) in list(self._open.items()):
            if ports.get(name) != port:
                del self._open[name]
                for runner in runners:
                    await runner.cleanup()
        for name, port in ports.items():
            if name not in self._open:
                await self._start(name, port)
        self._reported = {name: port for name, port in self._reported.items() if ports.get(name) == port}

    async def close(self) -> None:
        await self.sync({}, {})

    async def _start(self, name: NamespacedName, port: int) -> None:
        runners: list[web.AppRunner] = []
        try:
            for host in self._hosts:
                runners.append(await start({"/{path:.*}": self._handler(name)}, host, port, f"Service {name} health"))
        except Temporary as error:
            for runner in runners:
                await runner.cleanup()
            if self._reported.get(name) != port:
                self._reported[name] = port
                log.error("%s", error)
                self._on_failure(name, str(error))
            return
        self._open[name] = (port, runners)

    def _handler(self, name: NamespacedName) -> Handler:
        async def answer(_: web.Request) -> web.Response:
            count, healthy = self._counts.get(name, 0), self._healthy()
            body = {
                "service": {"namespace": name.namespace, "name": name.name},
                "localEndpoints": count,
                "serviceProxyHealthy": healthy,
            }
            headers = {"X-Load-Balancing-Endpoint-Weight": str(count)}
            return json_response(body, 200 if count and healthy else 503, headers)

        return answer
