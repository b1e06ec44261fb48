"""Makes one attempt of a probe: a command, an HTTP GET, a TCP connection or a gRPC health check.

Follows pkg/probe/{exec,http,tcp,grpc}, with the same texts for failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from agent.common import turn_waits
from agent.common.edge.host_resolver import HostResolver
from agent.common.edge.http_get import (
    MOST_REDIRECTS,
    Turn,
    Turns,
    any_certificate,
    following,
    get,
    open_session,
    without_turns,
)
from agent.common.model.addresses import is_address
from agent.common.model.errors import CriError
from agent.probes import grpc_check
from agent.probes.model import ExecRequest, HttpRequest, Outcome, ProbeRequest, TcpRequest, Verdict
from agent.runtime.ports import RuntimeService
from nodelib.errors import NodewrightError, Temporary
from nodelib.shortage import is_shortage
from nodelib.tasks import cancel_and_wait
from nodelib.text import cut

_T = TypeVar("_T")
_LATE = 0.02  # seconds; a timer that is later than this shows that the agent got no CPU
_LOOK = 0.005  # seconds, at least, between two looks at an attempt that waits for its turn
_MOST_OUTPUT = 10 * 1024


class ProbeIo:
    """One instance serves all probes: it has one TLS context and keeps no connections. Call close() at the end.

    `turns` gives each TLS connection its turn.
    """

    def __init__(
        self, runtime: RuntimeService, resolver: HostResolver | None = None, turns: Turns = without_turns
    ) -> None:
        self._runtime, self._resolver = runtime, resolver or HostResolver()
        self._tls = any_certificate()
        self._turns, self._turn = turns, turns(self._tls)
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
        if request.tls:
            return await grpc_check.check_by_tls(request, timeout, *self._grpc_tls)
        return await grpc_check.check(request, timeout)

    @cached_property
    def _grpc_tls(self) -> tuple[ssl.SSLContext, Turn]:
        context = any_certificate()
        context.set_alpn_protocols(["h2"])
        return context, self._turns(context)

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
            if error.code == "RESOURCE_EXHAUSTED":  # the runtime's answer, with the exit code, was not taken
                return Outcome(Verdict.ERROR, "the command wrote more than a MiB: have it write less")
            return Outcome(Verdict.ERROR, error.message)
        output = result.head(_MOST_OUTPUT).decode(errors="replace")
        return Outcome(Verdict.SUCCESS if result.exit_code == 0 else Verdict.FAILURE, output)

    async def _http(self, request: HttpRequest, pod: str, timeout: float) -> Outcome:
        try:
            work = self._follow_by_http2(request, pod) if request.http2 else self._follow(request, pod)
            return await _in_time(work, timeout)
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
            body = await _body(response) if 200 <= response.status < 400 else b""
            return _judged(response.status, response.headers.get("Location"), body)

    async def _follow_by_http2(self, request: HttpRequest, pod: str) -> Outcome:
        """Without TLS, and without asking first whether the server speaks it (h2c with prior knowledge)."""
        from agent.probes import http2  # 20 ms with h2, and its gate is off by default

        url = request.url
        for _ in range(MOST_REDIRECTS):
            parts = urlsplit(url)
            if parts.scheme != "http":
                raise ConnectionError("HTTP/2 without TLS is for http only")
            reader, writer = await self._dial(parts.hostname or "", parts.port or 80, pod)
            try:
                answer = await http2.ask(reader, writer, _http2_headers(request, url), most=_MOST_OUTPUT)
            finally:
                writer.transport.abort()
            location = answer.headers.get("location")
            further = following(url, answer.status, location)
            if further is None:
                return _judged(answer.status, location, answer.body)
            url = further
        raise Temporary(f"stopped after {MOST_REDIRECTS} redirects", obj=url)

    @contextlib.asynccontextmanager
    async def _session(self, host: str, pod: str) -> AsyncIterator[aiohttp.ClientSession]:
        """One session serves all probes of addresses, which is nearly every probe; a name is resolved for its pod."""
        if not is_address(host):
            async with open_session(self._tls, self._resolver, pod, self._turn) as session:
                yield session
            return
        if self._of_addresses is None:
            self._of_addresses = open_session(self._tls, self._resolver, "", self._turn)
        yield self._of_addresses

    async def _tcp(self, request: TcpRequest, pod: str, timeout: float) -> Outcome:
        try:
            _, writer = await _in_time(self._dial(request.host, request.port, pod), timeout)
        except TimeoutError:
            return Outcome(Verdict.FAILURE, f"dial tcp {request.host}:{request.port}: i/o timeout")
        except OSError as error:
            _raise_shortage(error)
            return Outcome(Verdict.FAILURE, _dial_failure(request, error))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return Outcome(Verdict.SUCCESS)

    async def _dial(self, host: str, port: int, pod: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError: the one of the last address."""
        failed = OSError("no such host")
        for address in await self._resolver.addresses(host, pod):
            try:
                return await asyncio.open_connection(address, port)
            except OSError as error:
                failed = error
        raise failed


async def _in_time(work: Coroutine[Any, Any, _T], seconds: float) -> _T:
    """Await `work`. Raises TimeoutError after `seconds`.

    Time in which this process did not run does not count against the container: when the timer itself fires late, an
    answer that is already in the socket is read first, and the lost time is granted once more. Time in which the
    attempt waited for its turn does not count either.
    """
    loop = asyncio.get_running_loop()
    with turn_waits.counted() as waits:
        task = asyncio.ensure_future(work)
    began = loop.time()
    try:
        while not task.done() and (left := began + seconds + waits.seconds() - loop.time()) > 0:
            await asyncio.wait({task}, timeout=max(left, _LOOK))
        late = loop.time() - began - seconds - waits.seconds()
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
    if isinstance(error, ssl.SSLError):  # whose numbers are OpenSSL's own: 1 would be "operation not permitted"
        return f"tls: {error}"
    if not error.errno:
        return f"dial tcp: {error}"  # the name has no address
    return f"dial tcp {request.host}:{request.port}: connect: {os.strerror(error.errno).lower()}"


async def _body(response: aiohttp.ClientResponse) -> bytes:
    return await response.content.read(_MOST_OUTPUT)


def _judged(status: int, location: str | None, body: bytes) -> Outcome:
    text = body.decode(errors="replace")
    if 300 <= status < 400 and location:
        return Outcome(Verdict.WARNING, f"Probe terminated redirects, Response body: {text}")
    if 200 <= status < 400:
        return Outcome(Verdict.SUCCESS, text)
    # The body of a failed response is never shown: https://issue.k8s.io/99425
    return Outcome(Verdict.FAILURE, f"HTTP probe failed with statuscode: {status}")


def _http2_headers(request: HttpRequest, url: str) -> list[tuple[str, str]]:
    """A Host of the pod's is for its own URL, as in Go's client."""
    parts = urlsplit(url)
    own = {name.lower(): value for name, value in request.headers}
    host = own.pop("host", "") if urlsplit(request.url).netloc == parts.netloc else ""
    own.pop("host", None)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    line = [(":method", "GET"), (":scheme", "http"), (":authority", host or parts.netloc), (":path", path)]
    return [*line, *own.items()]
