"""HTTP servers for a daemon's health, metrics and the like: GET only, one way to start any of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from nodelib.connections.gate import Gate
from nodelib.connections.limits import OPEN, ConnectionLimits
from nodelib.connections.middlewares import innermost, outermost
from nodelib.errors import Temporary

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_BACKLOG = 512
_KEEP_ALIVE = 75  # seconds
_LINGER = 1.0  # seconds for the rest of a body that nobody reads
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}


class HttpServer:
    """A server at one port or many, whose clients share what a single port has. Call cleanup() at the end.

    Whoever reaches a port, a pod of the node for one, may connect: nodelib.connections bounds what that costs.
    """

    def __init__(self, runner: web.AppRunner, gate: Gate) -> None:
        self._runner, self._gate = runner, gate
        self._listeners: dict[int, list[socket.socket]] = {}

    def listen(self, host: str, port: int, what: str) -> None:
        """Raises Temporary when the port cannot be opened."""
        try:
            listener = bound(host, port)
            self._gate.listen(listener, _BACKLOG)
        except OSError as error:
            raise Temporary(
                str(error),
                obj=what,
                step=f"listen on {host}:{port}",
                action="Free the port or configure another one.",
            ) from error
        self._listeners.setdefault(port, []).append(listener)

    async def leave(self, port: int) -> None:
        """Close the port, and what came there."""
        for listener in self._listeners.pop(port, ()):
            await self._gate.leave(listener)

    @property
    def ports(self) -> int:
        """How many are open."""
        return len(self._listeners)

    async def cleanup(self) -> None:
        await self._gate.close()
        await self._runner.cleanup()


async def start(routes: Mapping[str, Handler], host: str, port: int, what: str) -> HttpServer:
    """Serve GET `routes` until cleanup() of the result. Raises Temporary when the port cannot be opened."""
    server = await made(routes)
    try:
        server.listen(host, port, what)
    except Temporary:
        await server.cleanup()
        raise
    return server


async def made(routes: Mapping[str, Handler], limits: ConnectionLimits = OPEN) -> HttpServer:
    """A server of GET `routes` that has no port yet."""
    app = web.Application(middlewares=[outermost(), innermost()])
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    # Answers take milliseconds: closing a port must not hold up a sync for a minute because a client is silent.
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=1,
        keepalive_timeout=_KEEP_ALIVE,
        lingering_time=_LINGER,
        max_line_size=limits.head,
        max_field_size=limits.head,
    )
    await runner.setup()
    assert runner.server is not None, "made by setup()"
    return HttpServer(runner, Gate(runner.server, None, limits))


def bound(host: str, port: int, *, dual: bool = False) -> socket.socket:
    """A TCP socket that does not listen yet; `dual`: at :: it also takes IPv4. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


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
