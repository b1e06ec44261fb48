"""The connections of one server: which are accepted, and which give way to others."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from nodelib.accepting import next_connection
from nodelib.connections.connection import Connection
from nodelib.connections.limits import ConnectionLimits
from nodelib.loop_share import LoopShare
from nodelib.tasks import cancel_and_wait
from nodelib.tls_records import StrangerContext

log = logging.getLogger(__name__)

_WINDOW = 0.1  # seconds over which new connections are counted
_NO_ROOM = 0.05  # seconds between two looks
_OF_HANDSHAKES = 0.25  # of the process's time
_SHORT = 0.25  # seconds that are fair while many wait
_LOOK = 0.0002  # seconds between two looks at how many do, for each socket
_MANY, _TOO_MANY = 64, 128  # connections that wait for accept(); honest clients that all come at once are fewer
_QUEUED = 24  # where struct tcp_info of a listening socket has their number (tcpi_unacked), linux/tcp.h


class Gate:
    """The connections of one server, at one listening socket or more. Call listen(), and close() at the end."""

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None, limits: ConnectionLimits) -> None:
        self._server, self._tls, self.limits = server, tls, limits
        self._all: dict[Connection, None] = {}  # in the order in which they came
        self._strangers: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: dict[socket.socket, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()  # whoever has a great many ports is served at the pace of one
        self._before_turn = 0  # connections that wait for it
        self._crowd, self._looked = 0, -1.0  # how many waited everywhere, and when
        self._window, self._count = 0.0, 0  # when it began, and how many have come in it
        self._handshakes = LoopShare(_OF_HANDSHAKES, _WINDOW * _OF_HANDSHAKES)
        self._charged = 0.0  # of the seconds that handshakes have taken

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

    def admitted(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)

    def is_stranger(self, connection: Connection) -> bool:
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

    def closed(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        self._strangers.pop(connection, None)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            accepted, taken = await next_connection(listener), False
            try:
                async with self._in_turn():
                    if taken := await self._takes(listener, accepted):
                        await self._pace()
            finally:
                if not taken:
                    accepted.close()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        self._before_turn += 1
        try:
            await self._turn.acquire()
        finally:
            self._before_turn -= 1
        try:
            yield
        finally:
            self._turn.release()

    async def _takes(self, listener: socket.socket, accepted: socket.socket) -> bool:
        """When there is room. False: it is turned away."""
        loop = asyncio.get_running_loop()
        if self._waiting(loop.time()) > _TOO_MANY and not _has_spoken(accepted):
            await asyncio.sleep(0)
            return False
        while not self._make_room(loop.time()):
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
        if isinstance(self._tls, StrangerContext):
            self._handshakes.charge(self._tls.spent - self._charged)
            self._charged = self._tls.spent
            await self._handshakes.rest()

    def _take(self, listener: socket.socket, accepted: socket.socket) -> None:
        connection = Connection(self._server(), self, listener)
        self._all[connection] = self._strangers[connection] = None
        task = asyncio.get_running_loop().create_task(self._serve(connection, accepted))
        connection.handshake = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _waiting(self, now: float) -> int:
        """How many connections wait at all sockets. Of a great many, that is not asked for each connection anew."""
        if now - self._looked > _LOOK * len(self._listeners):
            self._crowd, self._looked = sum(map(_queued, self._listeners)), now
        return self._crowd + self._before_turn

    def _make_room(self, now: float) -> bool:
        """Whether one more may come. One that has to go is taken from those that have had a fair time."""
        if len(self._strangers) >= self.limits.strangers:
            fair = self.limits.fair_seconds
            silent = min(fair, _SHORT) if self._waiting(now) > _MANY else fair
            candidates = [one for one in self._strangers if now - one.since > (fair if one.is_busy else silent)]
        elif len(self._all) >= self.limits.connections:
            candidates = [one for one in self._all if one in self._strangers or not one.is_busy]
        else:
            return True
        if not candidates:
            return False
        there = Counter(one.listener for one in candidates)
        # Which goes first: without a certificate, before its request is being decided, where most are, and the oldest.
        min(candidates, key=lambda one: (one.has_certificate, one.is_busy, -there[one.listener], one.since)).abort()
        return True

    async def _serve(self, connection: Connection, accepted: socket.socket) -> None:
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


def _queued(listener: socket.socket) -> int:
    """How many connections wait there for being accepted."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED + 4)
    return int(struct.unpack_from("I", info, _QUEUED)[0])


def _has_spoken(accepted: socket.socket) -> bool:
    """Whether anything has arrived. A client that has closed the connection has nothing to say any more."""
    try:
        return bool(accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False
