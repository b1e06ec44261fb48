"""What clients cost that nobody knows: connections, heads of requests, waiting, and lines of the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agent.common.edge.http_get import any_certificate
from agent.server.edge.certificates import ensure_self_signed
from nodelib.connections.gate import Gate
from nodelib.connections.limits import OPEN, ConnectionLimits
from nodelib.connections.middlewares import innermost, outermost
from nodelib.daemons import http_server
from nodelib.daemons.log import LogOptions, setup
from nodelib.tls_records import StrangerContext
from tests.waiting import until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
MANY = 300


async def _well(_: web.Request) -> web.Response:
    return web.Response(text="well")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def gate(limits: ConnectionLimits, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server behind a gate; its port."""
    app = web.Application(middlewares=[outermost(), innermost()])
    app.router.add_get("/healthz", _well)
    runner = web.AppRunner(app, max_line_size=limits.head, max_field_size=limits.head)
    await runner.setup()
    assert runner.server is not None
    listener = socket.create_server(("127.0.0.1", 0))
    one = Gate(runner.server, tls, limits)
    one.listen(listener, 512)
    yield int(listener.getsockname()[1])
    await one.close()
    await runner.cleanup()


@contextlib.asynccontextmanager
async def clients(port: int, number: int, sends: bytes = b"") -> AsyncIterator[None]:
    """Connections that send this and then nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(ConnectionError):
                one.sendall(sends)
            await asyncio.sleep(0)
        yield


async def ask(port: int) -> tuple[bytes, float]:
    """The first line of an answer, and how long it took."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"Connection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer.split(b"\r\n")[0], time.monotonic() - started


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("sends", [b"", HEAD, HEAD + b"\r\n"], ids=["nothing", "half a head", "one request"])
async def test_a_port_for_health_takes_no_more_than_its_connections(sends: bytes) -> None:
    """A pod that holds connections to the proxy's health port must not leave it without descriptors."""
    port = free_port()
    server = await http_server.start({"/healthz": _well}, "127.0.0.1", port, "health")
    try:
        before = descriptors()
        async with clients(port, MANY, sends):
            line, _ = await ask(port)
            assert line == b"HTTP/1.1 200 OK"
            assert descriptors() <= before + MANY + OPEN.connections + 5
    finally:
        await server.cleanup()


@pytest.mark.parametrize("sends", [b"", b"G"], ids=["nothing", "a byte"])
async def test_a_long_queue_of_strangers_is_soon_over(sends: bytes) -> None:
    async with gate(ConnectionLimits()) as port, clients(port, MANY, sends):
        line, took = await ask(port)
        assert line == b"HTTP/1.1 200 OK"
        assert took < 15, "with two seconds for each of them it is 25"


async def test_heads_of_clients_that_were_answered_once_are_counted_too() -> None:
    limits = ConnectionLimits()
    async with gate(limits) as port:
        streams = []
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n")
            assert (await reader.readuntil(b"well")).startswith(b"HTTP/1.1 200")
            writer.write(HEAD + b"X: " + b"a" * 900_000)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            streams.append((reader, writer))

        def kept() -> int:
            return sum(not (reader.at_eof() or reader.exception()) for reader, _ in streams)

        await until(lambda: kept() * 900_000 <= limits.heads)
        assert kept(), "those that fit stay"
        for _, writer in streams:
            writer.transport.abort()


async def test_what_is_no_http_costs_no_lines_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    port = free_port()
    server = await http_server.start({"/healthz": _well}, "127.0.0.1", port, "health")
    try:
        setup(LogOptions(), "proxy")
        for junk in (
            b"\x16\x03\x01\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            HEAD + b"a b\r\n\r\n",
            b"GET " + b"/" * 70_000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(junk)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 20)
            writer.close()
        assert capsys.readouterr().err == ""
    finally:
        root.handlers[:], root.level = before
        await server.cleanup()


async def test_handshakes_have_a_quarter_of_the_time(tmp_path: Path) -> None:
    """A client may make one as long as tens of milliseconds, and a hundred were begun in a second."""
    context = StrangerContext.of(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ensure_self_signed(str(tmp_path), ("x",), ()))

    async def shake(port: int) -> float:
        began = time.monotonic()
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=any_certificate())
        writer.transport.abort()
        return time.monotonic() - began

    async with gate(ConnectionLimits(), context) as port:
        await shake(port)
        assert 0 < context.spent < 0.5
        context.spent += 0.5
        await shake(port)  # after it a pause is due
        assert await shake(port) > 1.0
