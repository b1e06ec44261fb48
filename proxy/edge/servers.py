"""The health check servers of single Services."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from aiohttp import web

from nodelib.daemons.http_server import Handler, HttpServer, json_response, start
from nodelib.errors import Temporary
from proxy.model import NamespacedName

log = logging.getLogger(__name__)


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
        self._open: dict[NamespacedName, tuple[int, list[HttpServer]]] = {}
        self._counts: Mapping[NamespacedName, int] = {}
        self._reported: dict[NamespacedName, int] = {}

    @property
    def failing(self) -> bool:
        """Whether a port could not be opened: the next sync tries again."""
        return bool(self._reported)

    async def sync(self, ports: Mapping[NamespacedName, int], counts: Mapping[NamespacedName, int]) -> None:
        """Serve `ports`, and nothing else. `counts`: each Service's ready endpoints on this node."""
        self._counts = counts
        for name, (port, servers) in list(self._open.items()):
            if ports.get(name) != port:
                del self._open[name]
                for server in servers:
                    await server.cleanup()
        for name, port in ports.items():
            if name not in self._open:
                await self._start(name, port)
        self._reported = {name: port for name, port in self._reported.items() if ports.get(name) == port}

    async def close(self) -> None:
        await self.sync({}, {})

    async def _start(self, name: NamespacedName, port: int) -> None:
        servers: list[HttpServer] = []
        try:
            for host in self._hosts:
                servers.append(await start({"/{path:.*}": self._handler(name)}, host, port, f"Service {name} health"))
        except Temporary as error:
            for server in servers:
                await server.cleanup()
            if self._reported.get(name) != port:
                self._reported[name] = port
                log.error("%s", error)
                self._on_failure(name, str(error))
            return
        self._open[name] = (port, servers)

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
