"""How the HTTP application tells a connection what becomes of its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from nodelib.connections.connection import Connection

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _connection_of(request: web.Request) -> Connection | None:
    protocol = request.transport.get_protocol() if request.transport is not None else None
    return protocol if isinstance(protocol, Connection) else None


def outermost() -> Middleware:
    """The first middleware of an application: a request begins and has its answer."""

    @web.middleware
    async def follow(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = _connection_of(request)
        if connection is None:
            return await handler(request)
        connection.begin()
        answer = None
        try:
            answer = await handler(request)
            return answer
        finally:
            if not connection.done() and answer is not None:
                answer.force_close()

    return follow


def innermost() -> Middleware:
    """The last middleware of an application: all others have let the request pass."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = _connection_of(request)
        if connection is not None:
            upgrade = "upgrade" in request.headers.get("Connection", "").lower()
            connection.admit(whole=upgrade or request.body_exists)
        return await handler(request)

    return admit
