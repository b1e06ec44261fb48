"""Connections of clients that nobody knows yet: how many there are, how long they may take, how much they may send.

Everybody who reaches the port may connect, so that whatever is kept before a request is authorized must be bounded.
Upstream's kubelet takes 1 MiB of head from each client for as long as it likes (server.go sets MaxHeaderBytes and a
ReadTimeout of four hours) and counts no connections. Here a connection hands one head at a time to the HTTP parser,
within ten seconds, and what follows the head waits until the request is authorized; of the connections without an
authorized request the oldest gives way to a new one, once it has had a fair time. That time is short while many wait
for being accepted, and of too many those that have said nothing by then are not served: an honest client has spoken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from nodelib.shortage import is_shortage
from nodelib.tasks import cancel_and_wait
from nodelib.tls_records import StrangerContext

log = logging.getLogger(__name__)

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
)
_END = b"\r\n\r\n"
_SMALL = 64 * 1024  # bytes of a head that are not worth counting all heads for
_HELD = 64 * 1024  # bytes after a head that are kept until the request is authorized; more stay in the kernel
_WINDOW = 0.1  # seconds over which new connections are counted
_NO_ROOM = 0.05  # seconds between two looks
_NO_DESCRIPTOR = 0.5  # seconds until the next accept() after one that failed
_OF_HANDSHAKES = 0.25  # of the process's time
_SHORT = 0.25  # seconds that are fair while many wait
_MANY, _TOO_MANY = 64, 128  # connections that wait for accept(); honest clients that all come at once are fewer
_QUEUED = 24  # where struct tcp_info of a listening socket has their number (tcpi_unacked), linux/tcp.h

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`head`: bytes of a request's head, as upstream (the command line of an exec is part of it); `heads`: of all heads
    together, except of those with a certificate of the cluster, such as the API server. `seconds`: for the TLS
    handshake, and for a head. `strangers`: connections without an authorized request, each of which has `fair_seconds`
    before it gives way to a new one; `connections`: all; `per_second`: new ones.
    """

    head: int = 1 << 20
    heads: int = 4 << 20
    seconds: float = 10.0
    strangers: int = 24
    fair_seconds: float = 2.0
    connections: int = 1000
    per_second: int = 100


# For what everybody may ask: health and metrics.
OPEN = ConnectionLimits(head=64 << 10, strangers=64, connections=128)


class Gate:
    """The connections of one server, at one listening socket or more. Call listen(), and close() at the end."""

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None, limits: ConnectionLimits) -> None:
        self._server, self._tls, self.limits = server, tls, limits
        self._all: dict[_Connection, None] = {}  # in the order in which they came
        self._strangers: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: dict[socket.socket, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()  # whoever has a great many ports is served at the pace of one
        self._window, self._count = 0.0, 0  # when it began, and how many have come in it
        self._paid = 0.0  # of the seconds that handshakes have taken, those that a pause was made for

    def listen(self, listener: socket.socket, backlog: int) -> None:
        """Raises OSError."""
        try:
            listener.setblocking(False)
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        accepting = asyncio.get_running_loop().create_task(self._accept(listener), name="accept")
        self._listeners[listener] = accepting

    async def leave(self, listener: socket.socket) -> None:
        """Stop listening there, and end what came there at once, whatever its clients still send."""
        await cancel_and_wait(self._listeners.pop(listener))
        listener.close()
        for one in [one for one in self._all if one.listener is listener]:
            one.abort()

    async def close(self) -> None:
        """Stop listening. Connections with a running request stay; the server ends those."""
        await cancel_and_wait(*self._listeners.values(), *self._tasks)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def admitted(self, connection: _Connection) -> None:
        self._strangers.pop(connection, None)

    def is_stranger(self, connection: _Connection) -> bool:
        return connection in self._strangers

    def reduce_heads(self) -> None:
        """Drop those with the largest heads until the rest are within their limit.

        Who was answered once is no stranger any more, also where everybody is answered.
        """
        candidates = (one for one in self._all if one in self._strangers or not one.is_busy)
        counted = sorted((one for one in candidates if not one.has_certificate), key=lambda one: one.taken)
        total = sum(one.taken for one in counted)
        while total > self.limits.heads:
            largest = counted.pop()
            total -= largest.taken
            largest.abort()

    def closed(self, connection: _Connection) -> None:
        self._all.pop(connection, None)
        self._strangers.pop(connection, None)

    async def _accept(self, listener: socket.socket) -> None:
        loop, failing = asyncio.get_running_loop(), False
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
                failing = False
            except OSError as error:
                if not is_shortage(error):
                    continue  # the client is gone already
                if not failing:
                    log.warning("a connection could not be accepted: %s", error)
                failing = True
                await asyncio.sleep(_NO_DESCRIPTOR)
                continue
            taken = False
            try:
                async with self._turn:
                    if taken := await self._takes(listener, accepted):
                        await self._pace()
            finally:
                if not taken:
                    accepted.close()

    async def _takes(self, listener: socket.socket, accepted: socket.socket) -> bool:
        """When there is room. False: it is turned away."""
        if _waiting(listener) > _TOO_MANY and not _has_spoken(accepted):
            await asyncio.sleep(0)
            return False
        loop = asyncio.get_running_loop()
        while not self._make_room(listener, loop.time()):
            await asyncio.sleep(_NO_ROOM)
        self._take(listener, accepted)
        self._count += 1
        return True

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window > _WINDOW:
            self._window, self._count = now, 1
        if self._count > self.limits.per_second * _WINDOW:
            # Each handshake takes a millisecond of the loop. The others wait in the kernel's queue.
            await asyncio.sleep(max(self._window + _WINDOW - now, 0.0))
        await self._pay()

    async def _pay(self) -> None:
        """Some handshakes take tens of milliseconds, as their clients like: others have three times as long again."""
        spent = self._tls.spent if isinstance(self._tls, StrangerContext) else 0.0
        owed = spent - self._paid
        if owed > _WINDOW * _OF_HANDSHAKES:
            await asyncio.sleep(owed / _OF_HANDSHAKES - owed)
            self._paid = spent

    def _take(self, listener: socket.socket, accepted: socket.socket) -> None:
        connection = _Connection(self._server(), self, listener)
        self._all[connection] = self._strangers[connection] = None
        task = asyncio.get_running_loop().create_task(self._serve(connection, accepted))
        connection.handshake = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _make_room(self, listener: socket.socket, now: float) -> bool:
        """Whether one more may come. One that has to go is taken from those that have had a fair time."""
        if len(self._strangers) >= self.limits.strangers:
            fair = self.limits.fair_seconds
            silent = min(fair, _SHORT) if _waiting(listener) > _MANY else fair
            candidates = [one for one in self._strangers if now - one.since > (fair if one.is_busy else silent)]
        elif len(self._all) >= self.limits.connections:
            candidates = [one for one in self._all if one in self._strangers or not one.is_busy]
        else:
            return True
        if not candidates:
            return False
        # Which goes first: without a certificate, before its request is being decided, and the oldest of those.
        min(candidates, key=lambda one: (one.has_certificate, one.is_busy, one.since)).abort()
        return True

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        limits: dict[str, float] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": self.limits.seconds, "ssl_shutdown_timeout": self.limits.seconds}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, **limits
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("a TLS handshake failed: %s", error)
            self.closed(connection)
        except BaseException:
            self.closed(connection)
            raise
        finally:
            connection.handshake = None


class _Connection(asyncio.Protocol):
    """One client: stands between its transport and the HTTP protocol, which gets one head at a time."""

    def __init__(self, inner: web.RequestHandler, gate: Gate, listener: socket.socket) -> None:
        self._inner, self._gate, self.listener = inner, gate, listener
        self.handshake: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.taken = 0  # bytes of the head so far
        self.since = asyncio.get_running_loop().time()
        self.has_certificate = False
        self._last = b""  # its last three bytes
        self._held = bytearray()
        self._is_paused = False
        self._is_open = False
        self._is_aborted = False
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "pause_reading")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports derive from nothing of asyncio
        if hasattr(transport, "set_read_buffer_limits"):  # of TLS: by default it reads half a MiB ahead
            transport.set_read_buffer_limits(_HELD)
        tls = transport.get_extra_info("ssl_object")
        self.has_certificate = tls is not None and bool(tls.getpeercert(binary_form=True))
        self._start_timer()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._inner.data_received(data)
        elif self.is_busy:
            self._hold(data)
        else:
            self._feed(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._gate.closed(self)
        self._inner.connection_lost(exc)
        self._held.clear()
        self._transport = None  # its buffers are a quarter of a MiB, and circles of references wait for the collector

    def abort(self) -> None:
        """End it at once, in the handshake or later."""
        self._is_aborted = True
        self._gate.closed(self)
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def begin(self) -> None:
        """The HTTP protocol has a whole head and handles the request."""
        self.is_busy = True
        self._stop_timer()

    def admit(self, *, whole: bool) -> None:
        """The request is authorized. `whole`: what follows its head belongs to it, a body or an upgraded stream."""
        self._gate.admitted(self)
        if not whole:
            return
        self._is_open = True
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._inner.data_received(held)
        self._resume()

    def done(self) -> bool:
        """The request has its answer. False: the client is a stranger still and must go."""
        if self._is_open or self._gate.is_stranger(self):
            return False
        self.is_busy, self.taken, self._last = False, 0, b""
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._feed(held)
        self._resume()
        return True

    def _feed(self, data: bytes) -> None:
        if not self.taken:
            data = data.lstrip(b"\r\n")  # the parser skips empty lines before a request, too
        if not data:
            return
        if self._timer is None:
            self._start_timer()
        seen = self._last + data
        found = seen.find(_END)
        head = data if found < 0 else data[: found + len(_END) - len(self._last)]
        self.taken += len(head)
        if self.taken > self._gate.limits.head:
            self._refuse()
            return
        if self.taken > _SMALL:
            self._gate.reduce_heads()
            if self._is_aborted:
                return
        self._last = seen[-3:]
        if found >= 0:
            self.is_busy = True
            self._hold(data[len(head) :])
        self._inner.data_received(head)

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > _HELD and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None and len(self._held) <= _HELD:
            self._is_paused = False
            with contextlib.suppress(RuntimeError):  # it is closing
                self._transport.resume_reading()

    def _refuse(self) -> None:
        self.is_busy = True
        if self._transport is not None:
            self._transport.write(_TOO_LARGE)
            self._transport.close()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._gate.limits.seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.abort()


def _waiting(listener: socket.socket) -> int:
    """How many connections wait there for being accepted."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED + 4)
    return int(struct.unpack_from("I", info, _QUEUED)[0])


def _has_spoken(accepted: socket.socket) -> bool:
    """Whether anything has arrived. A client that has closed the connection has nothing to say any more."""
    try:
        return bool(accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


def _connection_of(request: web.Request) -> _Connection | None:
    protocol = request.transport.get_protocol() if request.transport is not None else None
    return protocol if isinstance(protocol, _Connection) else None


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
