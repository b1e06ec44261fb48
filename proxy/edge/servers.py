"""The health check servers of single Services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from nodelib.connections.limits import OPEN_AT_MANY
from nodelib.daemons.http_server import HttpServer, json_response, made
from nodelib.errors import Temporary
from proxy.model import NamespacedName

log = logging.getLogger(__name__)

_AT_ONCE = 64  # ports that are opened or closed without giving way to others


@dataclass(slots=True)
class _Namespace:
    """One server for all Services of a namespace: whoever has hundreds of ports gets no more of the proxy than one."""

    server: HttpServer
    names: dict[int, NamespacedName] = field(default_factory=dict)  # by port


class ServiceHealthServers:
    """A port for each Service with a healthCheckNodePort (upstream healthcheck/service_health.go).

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
        self._namespaces: dict[str, _Namespace] = {}
        self._open: dict[NamespacedName, int] = {}
        self._counts: Mapping[NamespacedName, int] = {}
        self._reported: dict[NamespacedName, int] = {}

    @property
    def failing(self) -> bool:
        """Whether a port could not be opened: the next sync tries again."""
        return bool(self._reported)

    async def sync(self, ports: Mapping[NamespacedName, int], counts: Mapping[NamespacedName, int]) -> None:
        """Serve `ports`, and nothing else. `counts`: each Service's ready endpoints on this node."""
        self._counts = counts
        closed = [name for name, port in self._open.items() if ports.get(name) != port]
        for number, name in enumerate(closed, 1):
            await self._close(name)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        opened = [(name, port) for name, port in ports.items() if name not in self._open]
        for number, (name, port) in enumerate(opened, 1):
            await self._start(name, port)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self._reported = {name: port for name, port in self._reported.items() if ports.get(name) == port}

    async def close(self) -> None:
        await self.sync({}, {})

    async def _start(self, name: NamespacedName, port: int) -> None:
        space = await self._namespace(name.namespace)
        try:
            if port in space.names:
                raise Temporary(f"it is the port of {space.names[port]}", obj=f"Service {name} health", step="listen")
            for host in self._hosts:
                space.server.listen(host, port, f"Service {name} health")
        except Temporary as error:
            if port not in space.names:
                await space.server.leave(port)
            await self._end_if_unused(name.namespace)
            if self._reported.get(name) != port:
                self._reported[name] = port
                log.error("%s", error)
                self._on_failure(name, str(error))
            return
        space.names[port] = name
        self._open[name] = port

    async def _close(self, name: NamespacedName) -> None:
        """At once: a sync writes the rules of everybody, and clients may be silent, or send for ever."""
        space, port = self._namespaces[name.namespace], self._open.pop(name)
        del space.names[port]
        await space.server.leave(port)
        await self._end_if_unused(name.namespace)

    async def _namespace(self, name: str) -> _Namespace:
        if name not in self._namespaces:
            routes = {"/{path:.*}": self._answer_of(name)}
            space = self._namespaces[name] = _Namespace(await made(routes, OPEN_AT_MANY))
            return space
        return self._namespaces[name]

    async def _end_if_unused(self, namespace: str) -> None:
        if not self._namespaces[namespace].server.ports:
            await self._namespaces.pop(namespace).server.cleanup()

    def _answer_of(self, namespace: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            port = _port_of(request)
            name = self._namespaces[namespace].names.get(port) if namespace in self._namespaces else None
            if name is None:  # it has just been closed
                return json_response({}, 503)
            count, healthy = self._counts.get(name, 0), self._healthy()
            body = {
                "service": {"namespace": name.namespace, "name": name.name},
                "localEndpoints": count,
                "serviceProxyHealthy": healthy,
            }
            headers = {"X-Load-Balancing-Endpoint-Weight": str(count)}
            return json_response(body, 200 if count and healthy else 503, headers)

        return answer


def _port_of(request: web.Request) -> int:
    """At which it came, 0 for a connection that is gone."""
    address = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return int(address[1]) if isinstance(address, tuple) else 0
