"""The connections of one listening socket: which are accepted, and which give way to others."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct

from aiohttp import web

from nodelib.connections.connection import Connection
from nodelib.connections.limits import ConnectionLimits
from nodelib.shortage import is_shortage
from nodelib.tasks import cancel_and_wait
from nodelib.tls_records import StrangerContext

log = logging.getLogger(__name__)

_WINDOW = 0.1  # seconds over which new connections are counted
_NO_ROOM = 0.05  # seconds between two looks
_NO_DESCRIPTOR = 0.5  # seconds until the next accept() after one that failed
_OF_HANDSHAKES = 0.25  # of the process's time
_SHORT = 0.25  # seconds that are fair while many wait
_MANY, _TOO_MANY = 64, 128  # connections that wait for accept(); honest clients that all come at once are fewer
_QUEUED = 24  # where struct tcp_info of a listening socket has their number (tcpi_unacked), linux/tcp.h


class Gate:
    """The connections of one listening socket. Call start(), and close() at the end."""

    def __init__(
        self, server: web.Server, listener: socket.socket, tls: ssl.SSLContext | None, limits: ConnectionLimits
    ) -> None:
        self._server, self._listener, self._tls, self.limits = server, listener, tls, limits
        self._all: dict[Connection, None] = {}  # in the order in which they came
        self._strangers: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._paid = 0.0  # of the seconds that handshakes have taken, those that a pause was made for

    def start(self, backlog: int) -> None:
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="accept")

    async def close(self) -> None:
        """Stop listening. Connections with a running request stay; the server ends those."""
        tasks = [task for task in (self._accepting, *self._tasks) if task is not None]
        await cancel_and_wait(*tasks)
        self._listener.close()

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

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        window, count, failing = loop.time(), 0, False
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
                failing = False
            except OSError as error:
                if not is_shortage(error):
                    continue  # the client is gone already
                if not failing:
                    log.warning("a connection could not be accepted: %s", error)
                failing = True
                await asyncio.sleep(_NO_DESCRIPTOR)
                continue
            try:
                if self._waiting() > _TOO_MANY and not _has_spoken(accepted):
                    accepted.close()
                    await asyncio.sleep(0)
                    continue
                while not self._make_room(loop.time()):
                    await asyncio.sleep(_NO_ROOM)
            except BaseException:
                accepted.close()
                raise
            self._take(accepted)
            now = loop.time()
            if now - window > _WINDOW:
                window, count = now, 0
            count += 1
            if count > self.limits.per_second * _WINDOW:
                # Each handshake takes a millisecond of the loop. The others wait in the kernel's queue.
                await asyncio.sleep(max(window + _WINDOW - now, 0.0))
            await self._pay()

    async def _pay(self) -> None:
        """Some handshakes take tens of milliseconds, as their clients like: others have three times as long again."""
        spent = self._tls.spent if isinstance(self._tls, StrangerContext) else 0.0
        owed = spent - self._paid
        if owed > _WINDOW * _OF_HANDSHAKES:
            await asyncio.sleep(owed / _OF_HANDSHAKES - owed)
            self._paid = spent

    def _take(self, accepted: socket.socket) -> None:
        connection = Connection(self._server(), self)
        self._all[connection] = self._strangers[connection] = None
        task = asyncio.get_running_loop().create_task(self._serve(connection, accepted))
        connection.handshake = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _make_room(self, now: float) -> bool:
        """Whether one more may come. One that has to go is taken from those that have had a fair time."""
        if len(self._strangers) >= self.limits.strangers:
            fair = self.limits.fair_seconds
            silent = min(fair, _SHORT) if self._waiting() > _MANY else fair
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

    def _waiting(self) -> int:
        """How many connections wait for being accepted."""
        info = self._listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED + 4)
        return int(struct.unpack_from("I", info, _QUEUED)[0])

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


def _has_spoken(accepted: socket.socket) -> bool:
    """Whether anything has arrived. A client that has closed the connection has nothing to say any more."""
    try:
        return bool(accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False
