"""An API server between a node's agent and the real one, which answers as broken servers and balancers do.

It speaks HTTP/1.1 to the agent and TLS to the real server, as the node: it has the node's own certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from nodelib.kube.access import ClusterAccess
from nodelib.kube.streaming_list import END

PAGE = b"<html><head><title>Welcome</title></head><body>The service is being moved.</body></html>"
_EXPIRED = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}'
_BUSY = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}'
_HUGE = 512 * 1024 * 1024  # bytes of an answer that does not end

# kind -> status, headers, body: whole answers.
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "page": (200, {"Content-Type": "text/html"}, PAGE),
    "empty": (200, {"Content-Type": "application/json"}, b""),
    "object": (200, {"Content-Type": "application/json"}, b"{}"),
    "array": (200, {"Content-Type": "application/json"}, b"[]"),
    "list without version": (
        200,
        {"Content-Type": "application/json"},
        b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}',
    ),
    "other list": (
        200,
        {"Content-Type": "application/json"},
        b'{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}',
    ),
    "success": (200, {"Content-Type": "application/json"}, b'{"kind":"Status","status":"Success"}'),
    "gone": (410, {"Content-Type": "application/json"}, _EXPIRED),
    "busy": (429, {"Content-Type": "application/json", "Retry-After": "2"}, _BUSY),
    "unavailable": (503, {"Content-Type": "text/plain"}, b"no healthy upstream"),
    "forbidden": (403, {"Content-Type": "text/html"}, PAGE),
    "redirect": (302, {"Location": "http://127.0.0.1:1/"}, b""),
}
STREAMS = ("initial events without end", "end of initial events without version")  # all other watches are too old
OTHERS = ("hang", "cut", "slow", "endless", "deep", "close", *STREAMS)
KINDS = (*ANSWERS, *OTHERS)


class ApiProxy:
    """serve(), then close(). set("") passes everything on; other kinds answer a share `rate` of the requests so."""

    def __init__(self, upstream: ClusterAccess, seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._upstream = upstream
        self._dice = random.Random(seed)
        self._kind, self._rate = "", 1.0
        self._changed = asyncio.Event()
        self._closers: list[contextlib.AsyncExitStack] = []

    def set(self, kind: str, rate: float = 1.0) -> None:
        """Watches that are open are cut, but a hanging server keeps them open and says nothing more."""
        assert kind in ("", *KINDS), kind
        self._kind, self._rate = kind, rate
        self._changed.set()
        self._changed = asyncio.Event()

    async def serve(self, address: str) -> str:
        """Its URL."""
        stack = contextlib.AsyncExitStack()
        self._closers.append(stack)
        connector = aiohttp.TCPConnector(ssl=_tls(self._upstream), limit=0)
        self._session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, auto_decompress=False)
        )
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, address, 0)
        await site.start()
        port = runner.addresses[0][1]
        return f"http://{address}:{port}"

    async def close(self) -> None:
        self.set("")
        for stack in self._closers:
            await stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = self._kind if self._dice.random() < self._rate else ""
        if kind:
            self.counts[kind] += 1
        if kind in STREAMS and "watch" in request.query and "sendInitialEvents" not in request.query:
            kind = "gone"
        if kind in ANSWERS:
            status, headers, body = ANSWERS[kind]
            return web.Response(status=status, headers=headers, body=body)
        if kind == "hang":
            await self._changed.wait()
            raise web.HTTPServiceUnavailable
        if kind == "close":
            assert request.transport is not None
            request.transport.close()
            raise web.HTTPServiceUnavailable
        if kind == "endless":
            return await self._endless(request)
        if kind == "deep":
            return web.Response(body=b"[" * 1_000_000, content_type="application/json")
        return await self._pass(request, kind)

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        piece, changed = b" " * 1_048_576, self._changed
        for _ in range(_HUGE // len(piece)):
            if changed.is_set():
                break
            await response.write(piece)
        return response

    async def _pass(self, request: web.Request, kind: str) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "connection")}
        changed, body = self._changed, await request.read()
        async with self._session.request(
            request.method, self._upstream.server + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as real:
            skip = ("transfer-encoding", "connection", "content-length")
            response = web.StreamResponse(
                status=real.status, headers={k: v for k, v in real.headers.items() if k.lower() not in skip}
            )
            length = real.headers.get("Content-Length")
            if length:
                response.content_length = int(length)
            await response.prepare(request)
            lines = _OtherEnd(kind) if kind in STREAMS and "sendInitialEvents" in request.query else None
            async for piece in self._until(changed, real):
                if lines is not None:
                    piece = lines.changed(piece)
                if kind == "cut":
                    await response.write(piece[: len(piece) // 2])
                    assert request.transport is not None
                    request.transport.close()
                    return response
                if kind == "slow":
                    for at in range(0, len(piece), 16):
                        await response.write(piece[at : at + 16])
                        await asyncio.sleep(0.5)
                        if changed.is_set():
                            break
                    continue
                await response.write(piece)
            await response.write_eof()
            return response

    async def _until(self, changed: asyncio.Event, real: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Pieces of the body until it ends or the kind of fault changes; a hang keeps the connection, and is silent."""
        waiter = asyncio.ensure_future(changed.wait())
        try:
            while True:
                reader = asyncio.ensure_future(real.content.readany())
                await asyncio.wait({reader, waiter}, return_when=asyncio.FIRST_COMPLETED)
                if waiter.done():
                    reader.cancel()
                    if self._kind == "hang":
                        await self._changed.wait()
                    return
                piece = reader.result()
                if not piece:
                    return
                yield piece
        finally:
            waiter.cancel()


class _OtherEnd:
    """Initial events whose bookmark at the end is left out, or has no version."""

    def __init__(self, kind: str) -> None:
        self._keeps, self._held = kind != STREAMS[0], b""

    def changed(self, piece: bytes) -> bytes:
        *whole, self._held = (self._held + piece).split(b"\n")
        return b"".join(self._line(line) for line in whole)

    def _line(self, line: bytes) -> bytes:
        if END.encode() not in line:
            return line + b"\n"
        return re.sub(rb'"resourceVersion":"\d+"', b'"resourceVersion":""', line) + b"\n" if self._keeps else b""


def _tls(access: ClusterAccess) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=(access.ca_data or b"").decode())
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Path(folder, "cert"), Path(folder, "key")
        cert.write_bytes(access.cert_data or Path(access.cert_file or "").read_bytes())
        key.write_bytes(access.key_data or Path(access.key_file or "").read_bytes())
        context.load_cert_chain(cert, key)
    return context
