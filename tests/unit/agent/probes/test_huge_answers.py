"""Answers of probes that are enormous or never end: little of them is read, and 10 KiB are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import pytest

from agent.common.model.pods import ExecResult
from agent.probes.edge import ProbeIo
from agent.probes.model import ExecRequest, GrpcRequest, HttpRequest, Outcome, Verdict

_KEPT = 10 * 1024  # bytes
_READ = 16 << 20  # bytes that may be on the way when the node stops to read
_WHOLE = 256 << 20

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_LONG = b"X-Header: " + b"a" * 8000 + b"\r\n"


class Flood:
    """A server that sends `first`, and then `again` for ever; `sent` bytes of it were taken."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self._first, self._again, self.sent = first, again, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._first)
            while self.sent < _WHOLE:
                writer.write(self._again)
                await writer.drain()
                self.sent += len(self._again)
        except OSError:
            return
        finally:
            writer.close()


class Runtime:
    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult:
        return ExecResult(1, b"\xff" * (16 << 20), b"y" * (16 << 20))


@pytest.fixture
async def io() -> AsyncIterator[ProbeIo]:
    found = ProbeIo(Runtime())  # type: ignore[arg-type]
    yield found
    await found.close()


@pytest.mark.parametrize(
    ("first", "again", "verdict"),
    [
        pytest.param(_OK, _LONG * 100, Verdict.FAILURE, id="headers"),
        pytest.param(_OK, b"a:b\r\n" * 10_000, Verdict.FAILURE, id="many short headers"),
        pytest.param(_OK + b"X: ", b"a" * (1 << 20), Verdict.FAILURE, id="one header"),
        pytest.param(b"HTTP/1.1 200 ", b"a" * (1 << 20), Verdict.FAILURE, id="reason"),
        pytest.param(_CHUNKED + b"0\r\n", _LONG * 100, Verdict.FAILURE, id="trailers"),
        pytest.param(_CHUNKED + b"5;", b"a" * (1 << 20), Verdict.FAILURE, id="extension of a chunk"),
        pytest.param(_CHUNKED, b"100000\r\n" + b"a" * (1 << 20) + b"\r\n", Verdict.SUCCESS, id="body"),
        pytest.param(
            _OK + b"Content-Length: 99999999999999\r\n\r\n", b"a" * (1 << 20), Verdict.SUCCESS, id="long body"
        ),
        pytest.param(_OK + b"\r\n", b"\xff" * (1 << 20), Verdict.SUCCESS, id="body that is no UTF-8"),
        pytest.param(b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000, Verdict.FAILURE, id="early hints"),
    ],
)
async def test_endless_http(io: ProbeIo, first: bytes, again: bytes, verdict: Verdict) -> None:
    flood = Flood(first, again)
    server = await asyncio.start_server(flood.serve, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    outcome = await io.run(HttpRequest("http", "127.0.0.1", port, "/", ()), "c", 20)
    server.close()
    assert outcome.verdict is verdict and "deadline" not in outcome.output
    assert len(outcome.output.encode()) <= _KEPT and flood.sent <= _READ


async def test_16_mib_of_a_command(io: ProbeIo) -> None:
    outcome = await io.run(ExecRequest(("x",)), "c", 1)
    assert outcome.verdict is Verdict.FAILURE and len(outcome.output.encode()) <= _KEPT


@pytest.fixture
async def health() -> AsyncIterator[Callable[[bytes], GrpcRequest]]:
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    answer = [b""]

    async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return answer[0]

    handler = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    def answering(message: bytes) -> GrpcRequest:
        answer[0] = message
        return GrpcRequest("127.0.0.1", port, "")

    yield answering
    await server.stop(None)


@pytest.mark.parametrize("size", [100_000, 16 << 20])
async def test_a_huge_answer_over_grpc(io: ProbeIo, health: Callable[[bytes], GrpcRequest], size: int) -> None:
    """A HealthCheckResponse is two bytes long; upstream takes up to 4 MiB."""
    outcome = await io.run(health(b"\x08\x01" + b"\x12" + b"x" * size), "c", 20)
    assert outcome.verdict is Verdict.FAILURE and len(outcome.output.encode()) <= _KEPT


async def test_a_plain_answer_over_grpc(io: ProbeIo, health: Callable[[bytes], GrpcRequest]) -> None:
    assert await io.run(health(b"\x08\x01"), "c", 20) == Outcome(Verdict.SUCCESS, "service healthy")
