"""Probes over HTTP/2: without TLS against a server that speaks nothing else, and gRPC with TLS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.probes.edge import ProbeIo
from agent.probes.model import GrpcRequest, HttpRequest, Outcome, Verdict
from agent.server.edge.certificates import ensure_self_signed
from tests.fakes.http2_server import Http2Server, http2_server

_PREFACE = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # SETTINGS without any
_OK = b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88"
_CONTINUED = b"\x00\x40\x00\x09\x00\x00\x00\x00\x01"
_PING = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"12345678"


@pytest.fixture
async def io() -> AsyncIterator[ProbeIo]:
    found = ProbeIo(None)  # type: ignore[arg-type]
    yield found
    await found.close()


@pytest.fixture
async def server() -> AsyncIterator[Http2Server]:
    async with http2_server() as found:
        yield found


def _get(port: int, target: str = "/", *headers: tuple[str, str], http2: bool = True) -> HttpRequest:
    return HttpRequest("http", "127.0.0.1", port, target, headers, http2)


@pytest.mark.parametrize(
    ("status", "verdict", "output"),
    [(200, Verdict.SUCCESS, "body"), (404, Verdict.FAILURE, "HTTP probe failed with statuscode: 404")],
)
async def test_http2_without_tls(io: ProbeIo, server: Http2Server, status: int, verdict: Verdict, output: str) -> None:
    server.answers["/a?b=c"] = (status, {}, b"body")
    asked = _get(server.port, "/a?b=c", ("User-Agent", "kube-probe/1.37"), ("Host", "own"))
    assert await io.run(asked, "c", 5) == Outcome(verdict, output)
    (sent,) = server.asked
    assert (sent[":authority"], sent["user-agent"], sent[":scheme"]) == ("own", "kube-probe/1.37", "http")


async def test_http_1_is_not_understood_by_such_a_server(io: ProbeIo, server: Http2Server) -> None:
    """Or the tests here would pass without HTTP/2."""
    server.answers["/"] = (200, {}, b"")
    assert (await io.run(_get(server.port, http2=False), "c", 5)).verdict is Verdict.FAILURE
    assert (await io.run(_get(server.port), "c", 5)).verdict is Verdict.SUCCESS


async def test_redirects_stay_on_the_host(io: ProbeIo, server: Http2Server) -> None:
    server.answers |= {
        "/here": (302, {"location": "/there"}, b""),
        "/there": (200, {}, b"arrived"),
        "/away": (302, {"location": "http://elsewhere.invalid/"}, b"gone"),
        "/round": (302, {"location": "/round"}, b""),
    }
    assert await io.run(_get(server.port, "/here"), "c", 5) == Outcome(Verdict.SUCCESS, "arrived")
    away = await io.run(_get(server.port, "/away"), "c", 5)
    assert away == Outcome(Verdict.WARNING, "Probe terminated redirects, Response body: gone")
    assert (await io.run(_get(server.port, "/round"), "c", 5)).output.endswith("stopped after 10 redirects")


@pytest.mark.parametrize(
    ("first", "again", "said"),
    [
        pytest.param(_PREFACE, _PING * 500, "too many HTTP/2 frames", id="pings"),
        pytest.param(_PREFACE + _OK, b"\0\0\x01\0\0\0\0\0\x01a" * 500, "too many HTTP/2 frames", id="pieces"),
        pytest.param(b"", b"HTTP/1.1 200 OK\r\n\r\n", "malformed", id="HTTP/1.1"),
        pytest.param(
            _PREFACE, b"\x00\x40\x00\x09\x00\x00\x00\x00\x01" + b"a" * 0x4000, "bytes of HTTP/2 headers", id="headers"
        ),
        pytest.param(_PREFACE + b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07", b"", "error 7", id="reset"),
    ],
)
async def test_a_hostile_server_is_cut_and_holds_up_nobody(io: ProbeIo, first: bytes, again: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(100)
            writer.write(first)
            while not writer.is_closing():
                writer.write(again)
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            writer.close()

    turns: list[float] = []

    async def count() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    counting = asyncio.create_task(count())
    outcome = await io.run(_get(server.sockets[0].getsockname()[1]), "c", 30)
    counting.cancel()
    server.close()
    assert (outcome.verdict, said in outcome.output) == (Verdict.FAILURE, True), outcome
    if first.endswith(_OK):
        assert len(turns) >= 8  # 10 KiB in pieces of one


class _Health(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, answer: bytes, wait: float) -> None:
        self.answer, self.wait, self.asked = answer, wait, list[bytes]()

    def service(self, details: Any) -> Any:
        async def check(request: bytes, context: Any) -> bytes:
            self.asked.append(request)
            await asyncio.sleep(self.wait)
            return self.answer

        known = details.method == "/grpc.health.v1.Health/Check" and self.answer != b"none"
        return grpc.unary_unary_rpc_method_handler(check) if known else None


@pytest.mark.parametrize(
    ("answer", "wait", "verdict", "output"),
    [
        pytest.param(b"\x08\x01", 0, Verdict.SUCCESS, "service healthy", id="serving"),
        pytest.param(b"\x08\x02", 0, Verdict.FAILURE, 'responded with "NOT_SERVING"', id="not serving"),
        pytest.param(b"none", 0, Verdict.FAILURE, "does not implement the grpc health protocol", id="not there"),
        pytest.param(b"\x08\x01", 5, Verdict.FAILURE, "timeout: health rpc did not complete", id="too slow"),
    ],
)
async def test_grpc_with_tls(
    io: ProbeIo, tmp_path: Path, answer: bytes, wait: float, verdict: Verdict, output: str
) -> None:
    """Any certificate does, as upstream's probes take."""
    cert, key = (Path(one).read_bytes() for one in ensure_self_signed(str(tmp_path), ("elsewhere",), ()))
    server, health = grpc.aio.server(), _Health(answer, wait)
    server.add_generic_rpc_handlers((health,))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    await server.start()
    found = await io.run(GrpcRequest("127.0.0.1", port, "svc", tls=True), "c", 1 if wait else 20)
    assert (found.verdict, output in found.output) == (verdict, True), found
    assert health.asked == ([] if answer == b"none" else [b"\x0a\x03svc"])
    plain = await io.run(GrpcRequest("127.0.0.1", port, "svc"), "c", 0.5)
    assert plain.verdict is Verdict.FAILURE, "without TLS such a server does not answer"
    await server.stop(None)


async def test_grpc_with_tls_where_nobody_speaks_it(io: ProbeIo, server: Http2Server) -> None:
    found = await io.run(GrpcRequest("127.0.0.1", server.port, "", tls=True), "c", 5)
    assert found.verdict is Verdict.FAILURE and "failed to connect service" in found.output
