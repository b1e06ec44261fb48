"""One client: its heads are handed on one at a time, and what follows a head waits until the request is authorized."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol

from aiohttp import web

from nodelib.connections.limits import ConnectionLimits

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
)
_END = b"\r\n\r\n"
_SMALL = 64 * 1024  # bytes of a head that are not worth counting all heads for
_HELD = 64 * 1024  # bytes after a head that are kept until the request is authorized; more stay in the kernel


class Registry(Protocol):
    """All connections of the server, which this one is part of (gate.py)."""

    limits: ConnectionLimits

    def admitted(self, connection: Connection) -> None: ...

    def is_stranger(self, connection: Connection) -> bool: ...

    def reduce_heads(self) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One client: stands between its transport and the HTTP protocol, which gets one head at a time."""

    def __init__(self, inner: web.RequestHandler, registry: Registry, listener: socket.socket) -> None:
        self._inner, self._registry, self.listener = inner, registry, listener
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
        self._registry.closed(self)
        self._inner.connection_lost(exc)
        self._held.clear()
        self._transport = None  # its buffers are a quarter of a MiB, and circles of references wait for the collector

    def abort(self) -> None:
        """End it at once, in the handshake or later."""
        self._is_aborted = True
        self._registry.closed(self)
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
        self._registry.admitted(self)
        if not whole:
            return
        self._is_open = True
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._inner.data_received(held)
        self._resume()

    def done(self) -> bool:
        """The request has its answer. False: the client is a stranger still and must go."""
        if self._is_open or self._registry.is_stranger(self):
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
        if self.taken > self._registry.limits.head:
            self._refuse()
            return
        if self.taken > _SMALL:
            self._registry.reduce_heads()
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
        self._timer = asyncio.get_running_loop().call_later(self._registry.limits.seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.abort()
