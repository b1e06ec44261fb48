"""The HTTP servers: health for probes and load balancers, metrics, and one health check per Service that wants it."""

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
    """Listen and serve GET `routes`; end it with cleanup(). Raises Temporary when the port cannot be had."""
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    # Answers take milliseconds; a sync that closes a port must not wait a minute for a client that keeps quiet.
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
    """The same until cancelled."""
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

    200 while this node has ready endpoints of it and the proxy is well, else 503: so a load balancer learns
    which nodes to use. `failed` is told of a port that cannot be had; it is tried again with the next sync.
    """

    def __init__(
        self, hosts: tuple[str, ...], well: Callable[[], bool], failed: Callable[[NamespacedName, str], None]
    ) -> None:
        self._hosts = hosts
        self._well = well
        self._failed = failed
        self._open: dict[NamespacedName, tuple[int, list[web.AppRunner]]] = {}
        self._counts: Mapping[NamespacedName, int] = {}
        self._reported: dict[NamespacedName, int] = {}

    @property
    def failing(self) -> bool:
        """Is there a port that could not be had? Then the next sync tries again."""
        return bool(self._reported)

    async def sync(self, ports: Mapping[NamespacedName, int], counts: Mapping[NamespacedName, int]) -> None:
        """`ports`: what to serve; `counts`: ready endpoints on this node."""
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
                self._failed(name, str(error))
            return
        self._open[name] = (port, runners)

    def _handler(self, name: NamespacedName) -> Handler:
        async def answer(_: web.Request) -> web.Response:
            count, well = self._counts.get(name, 0), self._well()
            body = {
                "service": {"namespace": name.namespace, "name": name.name},
                "localEndpoints": count,
                "serviceProxyHealthy": well,
            }
            headers = {"X-Load-Balancing-Endpoint-Weight": str(count)}
            return json_response(body, 200 if count and well else 503, headers)

        return answer
