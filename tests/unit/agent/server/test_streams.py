"""Upgraded connections against a real TCP peer: bytes, half-closes, refusals, and what must not go on."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.common.model.errors import CriError, CriNotFound
from tests.fakes.agent_view import add_pod
from tests.fakes.streaming import FakeStreamingServer
from tests.unit.agent.server.conftest import Bench
from tests.waiting import until

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
_WEBSOCKET = (
    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture
async def peer(bench: Bench) -> AsyncIterator[FakeStreamingServer]:
    async with FakeStreamingServer() as server:
        bench.runtime.url = server.url
        yield server


async def _open(
    bench: Bench, path: str, headers: str, *, method: str = "POST", tls: ssl.SSLContext | None = None
) -> Stream:
    assert bench.server is not None
    port = bench.server.addresses["kubelet"][1]
    reader, writer = await asyncio.open_connection("localhost", port, ssl=tls or bench.tls())
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: node-1:10250\r\n{headers}\r\n".encode())
    return reader, writer


async def _start(bench: Bench, **change: object) -> None:
    settings = bench.settings(mode="AlwaysAllow", anonymous=True)
    await bench.start(replace(settings, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("upgrade", [_SPDY, _WEBSOCKET], ids=["spdy", "websocket"])
async def test_bytes_pass_both_ways_unchanged(
    bench: Bench, peer: FakeStreamingServer, method: str, upgrade: str
) -> None:
    await _start(bench)
    path = "/exec/ns/web/main?command=sh&command=-c&command=a%20b&input=1&output=1&error=1"
    reader, writer = await _open(bench, path, upgrade, method=method)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert await reader.readexactly(6) == b"hello "
    sent = bytes(range(256)) * 8192
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    writer.close()
    assert bench.runtime.asked == [
        ("u1-main", {"argv": ["sh", "-c", "a b"], "tty": False, "stdin": True, "stdout": True, "stderr": True})
    ]
    request = peer.requests[0].decode()
    assert request.startswith(f"{method} /exec/token?x=1 HTTP/1.1\r\nHost: node-1:10250\r\n")
    assert "X-Forwarded-For: 127.0.0.1\r\n" in request


async def test_a_long_command_passes(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench)
    reader, writer = await _open(bench, f"/exec/ns/web/main?output=1&command=sh&command={'x' * 300_000}", _SPDY)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    assert len(bench.runtime.asked[0][1]["argv"][1]) == 300_000
    writer.close()


async def test_data_behind_a_websocket_request_is_not_lost(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench)
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _WEBSOCKET, method="GET")
    writer.write(b"early")
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(11) == b"hello early"
    writer.close()


async def test_the_end_of_the_runtime_ends_the_client_after_the_last_byte(
    bench: Bench, peer: FakeStreamingServer
) -> None:
    await _start(bench)
    peer.close_after = 4 << 20
    reader, writer = await _open(bench, "/attach/ns/web/u1/main?output=1&input=1", _SPDY)
    await reader.readuntil(b"\r\n\r\nhello ")
    sent = b"x" * (4 << 20)
    receiving = asyncio.create_task(reader.read(-1))
    writer.write(sent)
    assert len(await asyncio.wait_for(receiving, 20)) == len(sent)
    writer.close()


async def test_the_end_of_the_client_ends_the_runtime(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench)
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    await reader.readuntil(b"\r\n\r\n")
    assert not peer.ended
    writer.close()
    assert await until(lambda: peer.ended)


async def test_a_slow_client_slows_the_runtime_and_loses_nothing(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench)
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    await reader.readuntil(b"\r\n\r\nhello ")
    sent = b"0123456789abcdef" * (1 << 18)
    writer.write(sent)
    received = b""
    while len(received) < len(sent):
        received += await reader.read(1 << 16)
        if len(received) < 1 << 20:
            await asyncio.sleep(0.005)
    assert received == sent
    writer.close()


async def test_an_idle_stream_is_closed(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench, streaming_idle_timeout=2)
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    await reader.readuntil(b"\r\n\r\nhello ")
    for _ in range(4):
        await asyncio.sleep(0.6)  # longer than the timeout in all; a busy machine has time for each
        writer.write(b"x")
        assert await asyncio.wait_for(reader.readexactly(1), 5) == b"x"
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nno token\n", b"404", b"no token\n"),
        (b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno!\r\n0\r\n\r\n", b"403", b"no!"),
        (b"HTTP/1.1 500 Oops\r\n\r\nuntil the end", b"500", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"500", b"invalid upgrade response: status code 200"),
        (b"nonsense\r\n\r\n", b"500", b"malformed HTTP response"),
        (b"HTTP/1.1 404 No", b"500", b"connection closed"),
    ],
    ids=["length", "chunked", "until close", "no upgrade", "nonsense", "cut"],
)
async def test_a_refused_upgrade_is_passed_back(
    bench: Bench, peer: FakeStreamingServer, answer: bytes, status: bytes, body: bytes
) -> None:
    await _start(bench)
    peer.refuse = answer
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == status
    assert body in await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()


async def test_no_streaming_server_is_said(bench: Bench) -> None:
    await _start(bench)
    bench.runtime.url = "http://127.0.0.1:1/exec/token"
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 500")
    writer.close()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CriNotFound("no such container", code="NOT_FOUND"), 404),
        (CriError("maximum number of in-flight requests exceeded", code="RESOURCE_EXHAUSTED"), 429),
        (CriError("container is in CONTAINER_EXITED state", code="UNKNOWN"), 500),
    ],
    ids=["not found", "too many", "other"],
)
async def test_the_runtimes_own_refusal(bench: Bench, error: CriError, status: int) -> None:
    await _start(bench)
    bench.runtime.fail = error
    assert await bench.get("/exec/ns/web/main?output=1", method="POST") == (status, error.message)


async def test_credentials_stay_here(bench: Bench, peer: FakeStreamingServer) -> None:
    await bench.start(bench.settings())
    bench.reviewer.tokens["secret-token"] = {"username": "jane"}
    bench.reviewer.allowed |= {("jane", "get", "proxy"), ("jane", "create", "proxy")}
    encoded = base64.urlsafe_b64encode(b"secret-token").decode().rstrip("=")
    protocols = f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io\r\n"
    for method, headers in (
        ("POST", _SPDY + "Authorization: Bearer secret-token\r\nCookie: a=b\r\n"),
        ("GET", _WEBSOCKET + protocols),
    ):
        reader, writer = await _open(bench, "/exec/ns/web/main?output=1", headers, method=method)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.close()
    for request in peer.requests:
        assert b"secret-token" not in request
        assert encoded.encode() not in request
        assert b"Cookie" not in request
    assert b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n" in peer.requests[1]


async def test_a_terminal_is_the_containers_choice_for_attach(bench: Bench, peer: FakeStreamingServer) -> None:
    add_pod(bench.view, "shell", "u2", tty=True)
    await _start(bench)
    for path in ("/attach/ns/shell/main?output=1&error=1", "/attach/ns/web/main?output=1&tty=1"):
        _, writer = await _open(bench, path, _SPDY)
        writer.close()
        wanted = 1 if "shell" in path else 2

        def asked(wanted: int = wanted) -> bool:
            return len(bench.runtime.asked) == wanted

        await until(asked)
    assert [streams["tty"] for _, streams in bench.runtime.asked] == [True, False]
    assert bench.runtime.asked[0][1]["stderr"] is False


@pytest.mark.parametrize(
    ("path", "headers", "ports"),
    [
        ("/portForward/ns/web", _SPDY, []),
        ("/portForward/ns/web/u1?port=80,443&port=8080", _WEBSOCKET, [80, 443, 8080]),
    ],
    ids=["spdy names ports per stream", "websocket names them in the query"],
)
async def test_port_forward(bench: Bench, peer: FakeStreamingServer, path: str, headers: str, ports: list[int]) -> None:
    await _start(bench)
    reader, writer = await _open(bench, path, headers, method="GET")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    assert bench.runtime.asked == [("u1-box", ports)]
    writer.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", 'query parameter "port" is required'),
        ("?port=", 'query parameter "port" cannot be empty'),
        ("?port=0", "must be > 0"),
        ("?port=70000", "unable to parse"),
        ("?port=x", "unable to parse"),
    ],
)
async def test_bad_ports(bench: Bench, query: str, said: str) -> None:
    await _start(bench)
    reader, writer = await _open(bench, f"/portForward/ns/web{query}", _WEBSOCKET, method="GET")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert said.encode() in await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
    writer.close()


async def test_streams_do_not_hold_up_the_stop(bench: Bench, peer: FakeStreamingServer) -> None:
    await _start(bench)
    reader, writer = await _open(bench, "/exec/ns/web/main?output=1", _SPDY)
    await reader.readuntil(b"\r\n\r\nhello ")
    assert bench.server is not None
    await asyncio.wait_for(bench.server.close(), 8)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
