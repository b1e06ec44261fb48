"""Proxy of one upgraded connection, byte for byte, to the runtime's streaming server.

Same contract as upstream's UpgradeAwareHandler (k8s.io/apimachinery/pkg/util/proxy) as the kubelet uses it: the
request is forwarded with its headers to the URL that CRI returned, an answer other than 101 is passed back, and after
a 101 bytes flow both ways until either side closes. SPDY/3.1 and WebSocket carry half-closes in frames, so a TCP
close ends both directions.

aiohttp does not know SPDY upgrades, so the transport is taken over from it. Its protocol still gets connection_lost()
at the end, which keeps its bookkeeping correct.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import web

from agent.server.model import UpgradeFailed
from nodelib.text_numbers import is_number

log = logging.getLogger(__name__)

_DIAL_LIMIT = 10.0  # seconds
_ANSWER_LIMIT = 60.0  # seconds; containerd answers an exec upgrade only once the client's request is accepted
_FLUSH_LIMIT = 10.0  # seconds that a slow reader gets after the other side has closed
_HEAD_LIMIT = 1 << 20
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_DROPPED = {"authorization", "cookie"}


class Hijacked(web.StreamResponse):
    """The response of a handler that has taken over the connection: aiohttp sends nothing."""

    async def prepare(self, request: web.BaseRequest) -> None:
        self.force_close()

    async def write_eof(self, data: bytes = b"") -> None:
        return


def is_upgrade(request: web.BaseRequest) -> bool:
    return "upgrade" in request.headers.get("Connection", "").lower()


async def proxy_upgrade(request: web.Request, url: str, *, idle_timeout: float, protocols: str = "") -> Hijacked:
    """Relay until either side closes or no byte has passed for `idle_timeout` seconds. Raises UpgradeFailed.

    `protocols` replaces the WebSocket subprotocols of the request, one of which may carry a token.
    """
    if not is_upgrade(request):
        raise UpgradeFailed(500, b"Upgrade request required")
    location = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_DIAL_LIMIT):
            _, backend = await loop.create_connection(_Backend, location.hostname or "", location.port or 80)
    except (OSError, TimeoutError) as error:
        raise UpgradeFailed(500, f"error dialing backend: {error or 'timed out'}".encode()) from error
    try:
        target = location.path + (f"?{location.query}" if location.query else "")
        backend.transport.write(_head(request, target or "/", protocols))
        early = await backend.answer()
    except BaseException:
        backend.transport.abort()
        raise
    return await _Pair(request, backend, early, idle_timeout).run()


def _head(request: web.BaseRequest, target: str, protocols: str) -> bytes:
    """The request head for the runtime, without the credentials, which are meant for the kubelet only."""
    lines = [f"{request.method} {target} HTTP/1.1".encode()]
    forwarded = []
    for raw_name, raw_value in request.raw_headers:
        name = raw_name.decode("latin-1").lower()
        if name == "x-forwarded-for":
            forwarded.append(raw_value.decode("latin-1"))
        elif name == "sec-websocket-protocol":
            if protocols:
                lines.append(b"Sec-WebSocket-Protocol: " + protocols.encode("latin-1"))
                protocols = ""
        elif name not in _DROPPED:
            lines.append(raw_name + b": " + raw_value)
    if request.remote:
        forwarded.append(request.remote)
    if forwarded:
        lines.append(f"X-Forwarded-For: {', '.join(forwarded)}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"


class _Backend(asyncio.Protocol):
    """The connection to the streaming server until its answer has arrived."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._data = bytearray()
        self._changed = asyncio.Event()
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._changed.set()

    async def answer(self) -> bytes:
        """All bytes received with a 101. Raises UpgradeFailed for any other answer."""
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                while b"\r\n\r\n" not in self._data:
                    await self._more()
                head, _, body = bytes(self._data).partition(b"\r\n\r\n")
                status, headers = _parse_head(head)
                if status == 101:
                    return bytes(self._data)
                if status < 400:
                    raise UpgradeFailed(500, f"invalid upgrade response: status code {status}".encode())
                raise UpgradeFailed(status, await self._body(headers, body), headers)
        except TimeoutError as error:
            raise UpgradeFailed(500, b"the runtime's streaming server did not answer in time") from error

    async def _body(self, headers: dict[str, str], body: bytes) -> bytes:
        start = len(self._data) - len(body)
        length = headers.pop("content-length", "")
        chunked = headers.pop("transfer-encoding", "") == "chunked"
        if is_number(length) and len(length) < 10:
            while len(self._data) - start < int(length):
                await self._more()
            return bytes(self._data[start : start + int(length)])
        while not self._ended and not (chunked and self._data.endswith(b"0\r\n\r\n")):
            await self._more(may_end=True)
        rest = bytes(self._data[start:])
        return _dechunk(rest) if chunked else rest

    async def _more(self, *, may_end: bool = False) -> None:
        if self._ended and not may_end:
            raise UpgradeFailed(500, b"error reading the answer of the runtime's streaming server: connection closed")
        if len(self._data) > _HEAD_LIMIT:
            raise UpgradeFailed(500, b"the answer of the runtime's streaming server is too long")
        self._changed.clear()
        if not self._ended:
            await self._changed.wait()


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not re.fullmatch("[0-9]{3}", parts[1]):
        raise UpgradeFailed(500, f"malformed HTTP response {first[:80]!r}".encode())
    pairs = (line.partition(":") for line in rest)
    return int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _dechunk(data: bytes) -> bytes:
    out, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = data[at:end].split(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(size) or not (length := int(size, 16)):
            break
        out += data[end + 2 : end + 2 + length]
        at = end + 2 + length + 2
    return bytes(out)


class _Side(asyncio.Protocol):
    """One of the two connections: it forwards what it receives to `peer`, whose full buffer pauses reading here."""

    def __init__(self, pair: _Pair, transport: asyncio.Transport, original: Any = None) -> None:
        self._pair = pair
        self.transport = transport
        self.original = original
        self.peer: _Side

    def data_received(self, data: bytes) -> None:
        self._pair.touch()
        self.peer.transport.write(data)

    def eof_received(self) -> bool:
        self._pair.finish()
        return False

    def pause_writing(self) -> None:
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.original is not None:
            self.original.connection_lost(exc)
        self._pair.lost(self)


class _Buffered:
    """Takes the place of aiohttp's WebSocket reader to get the bytes that arrived right after the request."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        return


def _buffered(request: web.Request) -> bytes:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return b""
    reader = _Buffered()
    request.protocol.set_parser(cast(Any, reader))
    return reader.data


class _Pair:
    """The joined connections of client and backend."""

    def __init__(self, request: web.Request, backend: _Backend, early: bytes, idle_timeout: float) -> None:
        client = request.transport
        if client is None or client.is_closing():
            backend.transport.abort()
            raise ConnectionResetError("the client disconnected before the upgrade")
        self._loop = asyncio.get_running_loop()
        self._idle = idle_timeout
        self._active = self._loop.time()
        self._done = asyncio.Event()
        self._open: set[_Side] = set()
        self._finishing = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._client = _Side(self, client, original=client.get_protocol())
        self._backend = _Side(self, backend.transport)
        self._client.peer, self._backend.peer = self._backend, self._client
        self._open = {self._client, self._backend}
        sent_already = _buffered(request)
        client.set_protocol(self._client)
        backend.transport.set_protocol(self._backend)
        client.write(early)
        if sent_already:
            backend.transport.write(sent_already)

    async def run(self) -> Hijacked:
        self._check_idle()
        try:
            await self._done.wait()
        finally:
            self.finish()
        return Hijacked()

    def touch(self) -> None:
        self._active = self._loop.time()

    def finish(self) -> None:
        """Close both ends. Buffered bytes are still written, for a limited time."""
        if self._finishing:
            return
        self._finishing = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        for side in tuple(self._open):
            side.transport.close()
        self._loop.call_later(_FLUSH_LIMIT, self._abort)

    def lost(self, side: _Side) -> None:
        self._open.discard(side)
        self.finish()
        if not self._open:
            self._done.set()

    def _abort(self) -> None:
        for side in tuple(self._open):
            side.transport.abort()
        self._done.set()

    def _check_idle(self) -> None:
        if self._idle <= 0:
            return
        rest = self._active + self._idle - self._loop.time()
        if rest > 0:
            self._watchdog = self._loop.call_later(rest, self._check_idle)
        else:
            log.info("streaming connection closed after %g s without traffic", self._idle)
            self.finish()
