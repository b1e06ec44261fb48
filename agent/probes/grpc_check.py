"""grpc.health.v1.Health/Check as a probe asks it, without TLS or with (pkg/probe/grpc), in upstream's words."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import nullcontext

import grpc

from agent.common.edge.http_get import Turn
from agent.probes.model import GrpcRequest, Outcome, Verdict
from nodelib.version import KUBERNETES_MINOR

_AGENT = f"kube-probe/{KUBERNETES_MINOR}"
_HEALTH = "/grpc.health.v1.Health/Check"
_MOST_HEALTH = 64 * 1024  # bytes; a HealthCheckResponse has two
_LONGEST_NAME = 32 * 1024  # bytes, of a service; HTTP/2 takes twice as many before its first answer
_SERVING = 1
_SERVING_STATUS = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def check(request: GrpcRequest, timeout: float) -> Outcome:
    """By gRPC's library, without TLS. `timeout` in seconds, once for the connection and once for the answer."""
    options = [
        ("grpc.primary_user_agent", _AGENT),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _MOST_HEALTH),
        # A server that says goodbye (GOAWAY) as soon as it is reached has the library try again within itself, without
        # end: 100 MB of memory each second, also when the probe is over. Upstream's library gives up.
        ("grpc.enable_retries", 0),
    ]
    async with grpc.aio.insecure_channel(_address(request), options=options) as channel:
        try:
            async with asyncio.timeout(timeout):
                await channel.channel_ready()
        except TimeoutError:
            return _unreached(request, timeout)
        ask = channel.unary_unary(_HEALTH, request_serializer=None, response_deserializer=None)
        try:
            answer: bytes = await ask(_message(request.service), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return _failure(error.code(), error.details() or "", timeout)
    return _judged(answer)


async def check_by_tls(request: GrpcRequest, timeout: float, tls: ssl.SSLContext, turn: Turn = nullcontext) -> Outcome:
    """gRPC's library would ask whose certificate it is, and a probe takes any. Raises OSError when nobody answers."""
    try:
        async with turn(), asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(request.host, request.port, ssl=tls)
    except TimeoutError:
        return _unreached(request, timeout)
    except (OSError, ssl.SSLError) as error:
        return Outcome(Verdict.FAILURE, f'error: failed to connect service at "{_address(request)}": {error}')
    try:
        async with asyncio.timeout(timeout):
            return await _asked(request, reader, writer, timeout)
    except TimeoutError:
        return _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "", timeout)
    except OSError as error:
        return _failure(grpc.StatusCode.UNAVAILABLE, str(error), timeout)
    finally:
        writer.transport.abort()


async def _asked(
    request: GrpcRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float
) -> Outcome:
    from agent.probes import http2  # 20 ms with h2, and its gate is off by default

    headers = (
        (":method", "POST"), (":scheme", "https"), (":authority", _address(request)), (":path", _HEALTH),
        ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", _AGENT),
        ("grpc-timeout", f"{max(1, int(timeout * 1000))}m"),
    )  # fmt: skip
    answer = await http2.ask(reader, writer, headers, _framed(_message(request.service)), most=_MOST_HEALTH)
    said = answer.trailers or answer.headers  # an error without a message comes in the headers alone
    if answer.status != 200:
        return _failure(grpc.StatusCode.UNKNOWN, f"unexpected HTTP status code {answer.status}", timeout)
    number = said.get("grpc-status", "")
    code = _CODES.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 3 else None
    if code is not grpc.StatusCode.OK:
        return _failure(code or grpc.StatusCode.UNKNOWN, said.get("grpc-message", ""), timeout)
    return _judged(answer.body[5:])


def _address(request: GrpcRequest) -> str:
    host = f"[{request.host}]" if ":" in request.host else request.host
    return f"{host}:{request.port}"


def _framed(message: bytes) -> bytes:
    """A message on the wire: not compressed, and its length."""
    return b"\0" + len(message).to_bytes(4) + message


def _message(service: str) -> bytes:
    """HealthCheckRequest{string service = 1}."""
    name = service.encode()[:_LONGEST_NAME]
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _judged(answer: bytes) -> Outcome:
    """HealthCheckResponse{ServingStatus status = 1}; absent means 0 (UNKNOWN)."""
    status = answer[1] if len(answer) >= 2 and answer[0] == 0x08 else 0
    if status != _SERVING:
        shown = _SERVING_STATUS.get(status, str(status))
        return Outcome(Verdict.FAILURE, f'service unhealthy (responded with "{shown}")')
    return Outcome(Verdict.SUCCESS, "service healthy")


def _unreached(request: GrpcRequest, timeout: float) -> Outcome:
    address = _address(request)
    text = f'timeout: failed to connect service "{address}" within {timeout:g}s: context deadline exceeded'
    return Outcome(Verdict.FAILURE, text)


def _failure(code: grpc.StatusCode, details: str, timeout: float) -> Outcome:
    if code is grpc.StatusCode.UNIMPLEMENTED:
        missing = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        return Outcome(Verdict.FAILURE, f"{missing}: {details}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Outcome(Verdict.FAILURE, f"timeout: health rpc did not complete within {timeout:g}s")
    text = f"error: health rpc probe failed: rpc error: code = {code.name} desc = {details}"
    return Outcome(Verdict.FAILURE, text)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
