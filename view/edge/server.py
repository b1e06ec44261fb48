"""The HTTP server: on loopback, bounded in connections, heads and time; it serves what `judge` lets through.

Whoever has an account on this machine can connect, so that a connection without an accepted request is closed after
ten seconds, and there are never more than 64: the oldest of those gives way to a new one, so that nobody keeps the
page from its owner by saying nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from aiohttp import WSMsgType, web

from nodelib.errors import Temporary
from nodelib.text import one_line
from view.edge.files import INDEX, File
from view.model.objects import LONGEST_REQUEST
from view.ports import Gone

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_HEAD = 8190  # bytes of one header
_CONNECTIONS = 64
_STRANGER = 10.0  # seconds until a connection must have had an accepted request
_IDLE = 15.0  # seconds
_TAKES = 20.0  # seconds in which a browser takes a message
_HEARTBEAT = 20.0
_VIEWERS = 16
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Verdict(Protocol):
    """Whether a request is answered; see view/plan/requests.py."""

    @property
    def status(self) -> int: ...

    @property
    def what(self) -> str: ...


Judge = Callable[[str, str, Mapping[str, str]], Verdict]
Ask = Callable[[Mapping[str, str]], Awaitable[tuple[int, bytes]]]


class Viewing(Protocol):
    """Serves one browser; view/work/viewer.py."""

    def hear(self, text: str) -> None: ...

    async def run(self) -> None: ...


class BrowserWire:
    """Sends to one browser, in a limited time."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def send(self, text: str) -> None:
        """Raises Gone."""
        try:
            async with asyncio.timeout(_TAKES):
                await self._socket.send_str(text)
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            raise Gone(str(error)) from error


class Server:
    """`viewer` makes the one who serves a browser; `answers` are what can be asked by a GET, by path."""

    def __init__(
        self,
        files: Mapping[str, File],
        judge: Judge,
        viewer: Callable[[BrowserWire], Viewing],
        answers: Mapping[str, Ask],
        live: str,
    ) -> None:
        self._files, self._judge, self._viewer, self._answers, self._live = files, judge, viewer, answers, live
        self._viewers = 0
        self._known: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[int]:
        """Serve on a port of loopback, 0: any; gives the port. Raises Temporary when it cannot be opened."""
        own = _Bounded(
            self._handle,
            access_log=None,
            max_line_size=LONGEST_REQUEST + 64,
            max_field_size=_HEAD,
            keepalive_timeout=_IDLE,
            lingering_time=0,
        )
        own.known = self._known
        try:
            listener = await asyncio.get_running_loop().create_server(own, sock=_bound(port))
        except OSError as error:
            raise Temporary(
                "another program has this port"
                if error.errno == errno.EADDRINUSE
                else one_line(error.strerror or str(error), 200),
                obj="nodewright view",
                step=f"listen on {HOST}:{port}",
                action="Give another port with --port, or none for any that is free.",
            ) from error
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            for one in list(self._known):
                one.abort()  # a browser has a connection open for as long as its page is
            await own.shutdown(1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        verdict = self._judge(request.method, request.raw_path, headers)
        if verdict.status != 200:
            return _words(verdict.status, verdict.what)
        if request.transport is not None:
            self._known.add(request.transport)
        if verdict.what == self._live:
            return await self._follow(request)
        if verdict.what in self._answers:
            status, body = await self._answers[verdict.what](dict(request.query))
            return web.Response(status=status, body=body, content_type="application/json", headers=_HEADERS)
        found = self._files.get(verdict.what or INDEX)
        if found is None:
            return _words(404, "There is no such file.")
        return web.Response(body=found.body, headers={**_HEADERS, "Content-Type": found.kind})

    async def _follow(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._viewers >= _VIEWERS:
            return _words(503, f"{_VIEWERS} browsers follow already; close one.")
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT, max_msg_size=LONGEST_REQUEST, compress=False, timeout=2, receive_timeout=None
        )
        socket.headers.update(_HEADERS)
        try:
            await socket.prepare(request)
        except web.HTTPException:
            return _words(400, "Only a WebSocket can follow what is live.")
        self._viewers += 1
        viewer = self._viewer(BrowserWire(socket))
        sending = asyncio.create_task(viewer.run(), name="viewer")
        transport = request.transport
        sending.add_done_callback(lambda done: _ended(done, transport))
        try:
            async for said in socket:
                if said.type is WSMsgType.TEXT:
                    viewer.hear(said.data)
        finally:
            self._viewers -= 1
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return socket


class _Bounded(web.Server):
    """Drops connections that are too many, and those that nobody known uses."""

    known: weakref.WeakSet[asyncio.Transport]

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > _CONNECTIONS:
            self._make_room(transport)
        asyncio.get_running_loop().call_later(_STRANGER, self._look, transport)

    def _make_room(self, new: asyncio.Transport) -> None:
        waiting = (one.transport for one in self.connections)
        strangers = [one for one in waiting if one is not None and one not in self.known and not one.is_closing()]
        (strangers or [new])[0].abort()

    def _look(self, transport: asyncio.Transport) -> None:
        if transport not in self.known:
            transport.abort()


def _bound(port: int) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((HOST, port))
    except OSError:
        one.close()
        raise
    return one


def _words(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=_HEADERS)


def _ended(sending: asyncio.Task[None], transport: asyncio.Transport | None) -> None:
    """A browser that takes nothing any more is not waited for; a defect of ours is in the log."""
    error = None if sending.cancelled() else sending.exception()
    if error is not None and not isinstance(error, Gone):
        log.error("a browser could not be served", exc_info=error)
    if transport is not None and not sending.cancelled():
        transport.abort()
