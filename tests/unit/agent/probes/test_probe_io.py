"""Probes against real servers on the loopback interface, a command through a runtime that answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web

from agent.common.model.errors import CriError, CriUnavailable
from agent.common.model.pods import ExecResult
from agent.probes.edge import ProbeIo
from agent.probes.model import ExecRequest, GrpcRequest, HttpRequest, Outcome, TcpRequest, Verdict
from agent.server.edge.certificates import ensure_self_signed

AGENT = (("User-Agent", "kube-probe/1.37"), ("Accept", "*/*"))


class Runtime:
    def __init__(self) -> None:
        self.answer: ExecResult | Exception = ExecResult(0, b"", b"")
        self.asked: list[Any] = []

    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult:
        self.asked.append((container_id, argv, timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
async def io(runtime: Runtime) -> AsyncIterator[ProbeIo]:
    found = ProbeIo(runtime)  # type: ignore[arg-type]
    yield found
    await found.close()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[int]]]:
    runners: list[web.AppRunner] = []

    async def start(handler: Any, tls: ssl.SSLContext | None = None) -> int:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        runners.append(runner)
        return int(runner.addresses[0][1])

    yield start
    for runner in runners:
        await runner.cleanup()


def get(port: int, target: str = "/", *, scheme: str = "http", headers: Any = AGENT) -> HttpRequest:
    return HttpRequest(scheme, "127.0.0.1", port, target, headers)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("status", "verdict", "output"),
    [
        pytest.param(200, Verdict.SUCCESS, "body", id="200"),
        pytest.param(204, Verdict.SUCCESS, "", id="204"),
        pytest.param(399, Verdict.SUCCESS, "body", id="399"),
        pytest.param(400, Verdict.FAILURE, "HTTP probe failed with statuscode: 400", id="400"),
        pytest.param(500, Verdict.FAILURE, "HTTP probe failed with statuscode: 500", id="500"),
    ],
)
async def test_http_status(io: ProbeIo, serve: Any, status: int, verdict: Verdict, output: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=None if status == 204 else "body")

    assert await io.run(get(await serve(handler)), "c", 5) == Outcome(verdict, output)


async def test_http_request_as_kubernetes_sends_it(io: ProbeIo, serve: Any) -> None:
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(text="ok")

    port = await serve(handler)
    await io.run(get(port, "/a%20b?c=d", headers=(*AGENT, ("Host", "virtual"), ("X-Two", "1"), ("X-Two", "2"))), "c", 5)
    request = seen[0]
    assert request.raw_path == "/a%20b?c=d" and request.host == "virtual"
    assert request.headers.getall("X-Two") == ["1", "2"]
    assert request.headers["User-Agent"] == "kube-probe/1.37" and "Accept-Encoding" not in request.headers


async def test_redirects_stay_on_the_host(io: ProbeIo, serve: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/here":
            return web.Response(status=302, headers={"Location": "/there"})
        if request.path == "/away":
            return web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"}, text="gone")
        if request.path == "/round":
            return web.Response(status=302, headers={"Location": "/round"})
        return web.Response(text="arrived")

    port = await serve(handler)
    assert await io.run(get(port, "/here"), "c", 5) == Outcome(Verdict.SUCCESS, "arrived")
    away = await io.run(get(port, "/away"), "c", 5)
    assert away == Outcome(Verdict.WARNING, "Probe terminated redirects, Response body: gone")
    assert (await io.run(get(port, "/round"), "c", 5)).output.endswith("stopped after 10 redirects")


async def test_https_takes_any_certificate(io: ProbeIo, serve: Any, tmp_path: Path) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ("n",), ())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    port = await serve(handler, context)
    assert (await io.run(get(port, scheme="https"), "c", 5)).verdict is Verdict.SUCCESS
    assert (await io.run(get(port), "c", 5)).verdict is Verdict.FAILURE


async def test_a_large_body_is_cut(io: ProbeIo, serve: Any) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 100_000)

    assert len((await io.run(get(await serve(handler)), "c", 5)).output) <= 10 * 1024


async def test_http_time_out(io: ProbeIo, serve: Any) -> None:
    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    found = await io.run(get(await serve(handler)), "c", 0.1)
    assert found.verdict is Verdict.FAILURE and "context deadline exceeded" in found.output


async def test_an_attempt_that_the_agents_end_cuts_off_says_nothing_of_the_container(io: ProbeIo, serve: Any) -> None:
    asked = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(5)
        return web.Response()

    port = await serve(handler)
    attempt = asyncio.create_task(io.run(get(port), "c", 5))
    await asked.wait()
    await io.close()
    assert await attempt == Outcome(Verdict.ERROR, "the agent is stopping")
    # The probes' own task ends after what they use.
    for request in (get(port), TcpRequest("127.0.0.1", free_port())):
        assert await io.run(request, "c", 1) == Outcome(Verdict.ERROR, "the agent is stopping")


async def test_nobody_listens(io: ProbeIo) -> None:
    port = free_port()
    found = await io.run(get(port), "c", 1)
    assert found.output == f'Get "http://127.0.0.1:{port}/": dial tcp 127.0.0.1:{port}: connect: connection refused'
    found = await io.run(TcpRequest("127.0.0.1", port), "c", 1)
    assert found == Outcome(Verdict.FAILURE, f"dial tcp 127.0.0.1:{port}: connect: connection refused")


async def test_a_header_that_is_none_is_an_error_not_a_crash(io: ProbeIo, serve: Any) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    found = await io.run(get(await serve(handler), headers=(("X", "a\r\nb: c"),)), "c", 1)
    assert found.verdict is Verdict.ERROR


async def test_tcp(io: ProbeIo) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await io.run(TcpRequest("127.0.0.1", port), "c", 1)).verdict is Verdict.SUCCESS


@pytest.mark.parametrize(
    ("answer", "verdict", "output"),
    [
        pytest.param(ExecResult(0, b"fine", b""), Verdict.SUCCESS, "fine", id="0"),
        pytest.param(ExecResult(1, b"a", b"b"), Verdict.FAILURE, "ab", id="1"),
        pytest.param(
            CriUnavailable("deadline", code="DEADLINE_EXCEEDED"),
            Verdict.FAILURE,
            'command timed out: "sh -c x" timed out after 2s',
            id="time-out",
        ),
        pytest.param(CriUnavailable("socket gone", code="UNAVAILABLE"), Verdict.ERROR, "socket gone", id="no runtime"),
    ],
)
async def test_exec(io: ProbeIo, runtime: Runtime, answer: Any, verdict: Verdict, output: str) -> None:
    runtime.answer = answer
    assert await io.run(ExecRequest(("sh", "-c", "x")), "c1", 2) == Outcome(verdict, output)
    assert runtime.asked == [("c1", ["sh", "-c", "x"], 2)]


class Health(grpc.GenericRpcHandler):  # type: ignore[misc]
    """grpc.health.v1.Health with the answer that it was given."""

    def __init__(self, answer: bytes, *, wait: float = 0) -> None:
        self.requests: list[bytes] = []
        self._answer, self._wait = answer, wait

    def service(self, details: Any) -> Any:
        if details.method != "/grpc.health.v1.Health/Check":
            return None
        return grpc.unary_unary_rpc_method_handler(self._check)

    async def _check(self, request: bytes, _: Any) -> bytes:
        self.requests.append(request)
        await asyncio.sleep(self._wait)
        return self._answer


@pytest.fixture
async def health() -> AsyncIterator[Callable[[Any], Awaitable[int]]]:
    servers: list[Any] = []

    async def start(handler: Any) -> int:
        server = grpc.aio.server()
        if handler is not None:
            server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        return int(port)

    yield start
    for server in servers:
        await server.stop(None)


@pytest.mark.parametrize(
    ("answer", "verdict", "output"),
    [
        pytest.param(b"\x08\x01", Verdict.SUCCESS, "service healthy", id="serving"),
        pytest.param(
            b"\x08\x02", Verdict.FAILURE, 'service unhealthy (responded with "NOT_SERVING")', id="not serving"
        ),
        pytest.param(b"", Verdict.FAILURE, 'service unhealthy (responded with "UNKNOWN")', id="unknown"),
    ],
)
async def test_grpc(io: ProbeIo, health: Any, answer: bytes, verdict: Verdict, output: str) -> None:
    handler = Health(answer)
    port = await health(handler)
    assert await io.run(GrpcRequest("127.0.0.1", port, "svc"), "c", 5) == Outcome(verdict, output)
    assert handler.requests == [b"\x0a\x03svc"]


async def test_grpc_that_has_no_health_service(io: ProbeIo, health: Any) -> None:
    found = await io.run(GrpcRequest("127.0.0.1", await health(None), ""), "c", 5)
    assert "does not implement the grpc health protocol" in found.output and found.verdict is Verdict.FAILURE


async def test_grpc_too_slow_and_not_there(io: ProbeIo, health: Any) -> None:
    slow = await io.run(GrpcRequest("127.0.0.1", await health(Health(b"\x08\x01", wait=5)), ""), "c", 0.5)
    assert slow.output == "timeout: health rpc did not complete within 0.5s"
    gone = await io.run(GrpcRequest("127.0.0.1", free_port(), ""), "c", 0.5)
    assert "failed to connect service" in gone.output and gone.verdict is Verdict.FAILURE


async def test_time_in_which_the_agent_itself_did_not_run_is_not_the_containers(io: ProbeIo, serve: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        time.sleep(0.6)  # the loop that the probe waits in stands still; the answer lies in the socket after it
        return web.Response(text="here")

    port = await serve(handler)
    assert await io.run(get(port), "c", 0.2) == Outcome(Verdict.SUCCESS, "here")


async def test_whether_a_command_that_writes_more_than_is_taken_has_failed_is_not_known(
    io: ProbeIo, runtime: Runtime
) -> None:
    """A container that is well would be restarted again and again for it."""
    runtime.answer = CriError("Received message larger than max", code="RESOURCE_EXHAUSTED")
    found = await io.run(ExecRequest(("x",)), "c", 1.0)
    assert found == Outcome(Verdict.ERROR, "the command wrote more than a MiB: have it write less")
