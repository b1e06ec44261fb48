"""Makes one attempt of a probe: a command, an HTTP GET, a TCP connection or a gRPC health check.

Follows pkg/probe/{exec,http,tcp,grpc}, with the same texts for failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import aiohttp
import grpc

from agent.common.edge.host_resolver import HostResolver
from agent.common.edge.http_get import any_certificate, get, open_session
from agent.common.model.addresses import is_address
from agent.common.model.errors import CriError
from agent.probes.model import ExecRequest, GrpcRequest, HttpRequest, Outcome, ProbeRequest, TcpRequest, Verdict
from agent.runtime.ports import RuntimeService
from nodelib.errors import NodewrightError, Temporary
from nodelib.shortage import is_shortage
from nodelib.tasks import cancel_and_wait
from nodelib.text import cut
from nodelib.version import KUBERNETES_MINOR

_T = TypeVar("_T")
_LATE = 0.02  # seconds; a timer that is later than this shows that the agent got no CPU
_MOST_OUTPUT = 10 * 1024
_HEALTH = "/grpc.health.v1.Health/Check"
_MOST_HEALTH = 64 * 1024  # bytes; a HealthCheckResponse has two
_SERVING = 1
_SERVING_STATUS = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class ProbeIo:
    """One instance serves all probes: it has one TLS context and keeps no connections. Call close() at the end."""

    def __init__(self, runtime: RuntimeService, resolver: HostResolver | None = None) -> None:
        self._runtime, self._resolver = runtime, resolver or HostResolver()
        self._tls = any_certificate()
        self._of_addresses: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def run(self, request: ProbeRequest, container_id: str, timeout: float, *, pod: str = "") -> Outcome:
        """One attempt of at most `timeout` seconds; `pod` is its UID. Raises nothing but CancelledError."""
        outcome = Outcome(Verdict.ERROR)
        try:
            if not self._is_closed:
                outcome = await self._attempt(request, container_id, timeout, pod)
        except (NodewrightError, OSError, ValueError, aiohttp.ClientError) as error:
            outcome = Outcome(Verdict.ERROR, str(error))
        if self._is_closed:  # an attempt that this cut off says nothing about the container
            outcome = Outcome(Verdict.ERROR, "the agent is stopping")
        return Outcome(outcome.verdict, cut(outcome.output, _MOST_OUTPUT))

    async def _attempt(self, request: ProbeRequest, container_id: str, timeout: float, pod: str) -> Outcome:
        if isinstance(request, HttpRequest):
            return await self._http(request, pod, timeout)
        if isinstance(request, ExecRequest):
            return await self._exec(request, container_id, timeout)
        if isinstance(request, TcpRequest):
            return await self._tcp(request, pod, timeout)
        socket.socket().close()  # gRPC does not say that it could not open one
        return await _grpc(request, timeout)

    async def close(self) -> None:
        self._is_closed = True
        if self._of_addresses is not None:
            await self._of_addresses.close()
            self._of_addresses = None

    async def _exec(self, request: ExecRequest, container_id: str, timeout: float) -> Outcome:
        try:
            result = await self._runtime.exec_sync(container_id, list(request.argv), timeout)
        except CriError as error:
            if error.code == "DEADLINE_EXCEEDED":
                command = " ".join(request.argv)
                return Outcome(Verdict.FAILURE, f'command timed out: "{command}" timed out after {timeout:g}s')
            return Outcome(Verdict.ERROR, error.message)
        output = result.head(_MOST_OUTPUT).decode(errors="replace")
        return Outcome(Verdict.SUCCESS if result.exit_code == 0 else Verdict.FAILURE, output)

    async def _http(self, request: HttpRequest, pod: str, timeout: float) -> Outcome:
        try:
            return await _in_time(self._follow(request, pod), timeout)
        except TimeoutError:
            return Outcome(Verdict.FAILURE, f'Get "{request.url}": context deadline exceeded (timeout {timeout:g}s)')
        except aiohttp.ClientConnectorError as error:
            _raise_shortage(error)
            return Outcome(Verdict.FAILURE, f'Get "{request.url}": {_dial_failure(request, error.os_error)}')
        except Temporary as error:
            return Outcome(Verdict.FAILURE, f'Get "{error.obj}": {error.message}')
        except (aiohttp.ClientError, OSError) as error:
            _raise_shortage(error)
            return Outcome(Verdict.FAILURE, f'Get "{request.url}": {error or type(error).__name__}')

    async def _follow(self, request: HttpRequest, pod: str) -> Outcome:
        async with self._session(request.host, pod) as session, get(session, request.url, request.headers) as response:
            if 300 <= response.status < 400 and response.headers.get("Location"):
                body = await _body(response)
                return Outcome(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
            if 200 <= response.status < 400:
                return Outcome(Verdict.SUCCESS, await _body(response))
            # The body of a failed response is never shown: https://issue.k8s.io/99425
            return Outcome(Verdict.FAILURE, f"HTTP probe failed with statuscode: {response.status}")

    @contextlib.asynccontextmanager
    async def _session(self, host: str, pod: str) -> AsyncIterator[aiohttp.ClientSession]:
        """One session serves all probes of addresses, which is nearly every probe; a name is resolved for its pod."""
        if not is_address(host):
            async with open_session(self._tls, self._resolver, pod) as session:
                yield session
            return
        if self._of_addresses is None:
            self._of_addresses = open_session(self._tls, self._resolver, "")
        yield self._of_addresses

    async def _tcp(self, request: TcpRequest, pod: str, timeout: float) -> Outcome:
        try:
            writer = await _in_time(self._dial(request, pod), timeout)
        except TimeoutError:
            return Outcome(Verdict.FAILURE, f"dial tcp {request.host}:{request.port}: i/o timeout")
        except OSError as error:
            _raise_shortage(error)
            return Outcome(Verdict.FAILURE, _dial_failure(request, error))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return Outcome(Verdict.SUCCESS)

    async def _dial(self, request: TcpRequest, pod: str) -> asyncio.StreamWriter:
        """Raises OSError: the one of the last address."""
        failed = OSError("no such host")
        for address in await self._resolver.addresses(request.host, pod):
            try:
                return (await asyncio.open_connection(address, request.port))[1]
            except OSError as error:
                failed = error
        raise failed


async def _in_time(work: Coroutine[Any, Any, _T], seconds: float) -> _T:
    """Await `work`. Raises TimeoutError after `seconds`.

    Time in which this process did not run does not count against the container: when the timer itself fires late, an
    answer that is already in the socket is read first, and the lost time is granted once more.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    deadline = loop.time() + seconds
    try:
        await asyncio.wait({task}, timeout=seconds)
        late = loop.time() - deadline
        if not task.done() and late > _LATE:
            await asyncio.wait({task}, timeout=min(late, seconds))
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        await cancel_and_wait(task)


def _raise_shortage(error: BaseException) -> None:
    """A probe that this node has no socket for has not failed: it says nothing about the container."""
    if is_shortage(error):
        raise error


def _dial_failure(request: HttpRequest | TcpRequest, error: OSError) -> str:
    """In the words of Go's net.Dial. The kernel's text is used, because asyncio puts its own into strerror."""
    if not error.errno:
        return f"dial tcp: {error}"  # the name has no address
    return f"dial tcp {request.host}:{request.port}: connect: {os.strerror(error.errno).lower()}"


async def _body(response: aiohttp.ClientResponse) -> str:
    return (await response.content.read(_MOST_OUTPUT)).decode(errors="replace")


async def _grpc(request: GrpcRequest, timeout: float) -> Outcome:
    host = f"[{request.host}]" if ":" in request.host else request.host
    address = f"{host}:{request.port}"
    options = [
        ("grpc.primary_user_agent", f"kube-probe/{KUBERNETES_MINOR}"),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _MOST_HEALTH),
    ]
    name = request.service.encode()
    # HealthCheckRequest{string service = 1}, HealthCheckResponse{ServingStatus status = 1} on the wire.
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        try:
            async with asyncio.timeout(timeout):
                await channel.channel_ready()
        except TimeoutError:
            text = f'timeout: failed to connect service "{address}" within {timeout:g}s: context deadline exceeded'
            return Outcome(Verdict.FAILURE, text)
        check = channel.unary_unary(_HEALTH, request_serializer=None, response_deserializer=None)
        try:
            answer: bytes = await check(message, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return Outcome(Verdict.FAILURE, _grpc_failure(error, timeout))
    status = _serving_status(answer)
    if status != _SERVING:
        shown = _SERVING_STATUS.get(status, str(status))
        return Outcome(Verdict.FAILURE, f'service unhealthy (responded with "{shown}")')
    return Outcome(Verdict.SUCCESS, "service healthy")


def _grpc_failure(error: grpc.aio.AioRpcError, timeout: float) -> str:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return (
            f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {error.details()}"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {timeout:g}s"
    return f"error: health rpc probe failed: rpc error: code = {error.code().name} desc = {error.details()}"


def _serving_status(message: bytes) -> int:
    """Field 1 of HealthCheckResponse; absent means 0 (UNKNOWN)."""
    return message[1] if len(message) >= 2 and message[0] == 0x08 else 0


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
