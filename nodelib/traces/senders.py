"""One export request to a collector, over gRPC or HTTP. Import it where spans are sent: it loads gRPC and protobuf.

An answer is read to 64 KiB at most, and each request has a limit of time: a collector may be anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import grpc
import grpc.aio

from nodelib.errors import Permanent, Temporary
from nodelib.json_values import Json
from nodelib.plugin_apis.wire import Call
from nodelib.text import one_line
from nodelib.traces import endpoints
from nodelib.traces.wire import EXPORT, trace_api

_LIMIT = 10.0  # seconds for one request, OTEL_EXPORTER_OTLP_TIMEOUT's default
_MOST = 64 * 1024  # bytes of an answer
_QUOTED = 300  # bytes of a collector's words
_OPTIONS = [
    ("grpc.max_receive_message_length", _MOST),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 30_000),
    ("grpc.enable_retries", 0),
]
# Worth another try, by OTLP's specification (opentelemetry-proto docs/specification.md, Failures).
_AGAIN = {
    grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS,
}  # fmt: skip
_HTTP_AGAIN = {429, 502, 503, 504}
_TOO_LARGE = "larger than max"  # grpc's words for an answer beyond _MOST; its code alone means "try again"


class GrpcSender:
    """OTLP/gRPC without TLS, as upstream's kubelet speaks it. Create it in the running loop; end it with close()."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint, self._call = endpoint, trace_api().calls[EXPORT]
        self._channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        self._stub: Any = self._channel.unary_unary(
            self._call.path, request_serializer=None, response_deserializer=self._call.decode
        )

    async def send(self, parts: Iterable[Json]) -> int:
        """Sends one request, made of those in `parts`; others have their turn after each of them. Returns how many
        spans the collector took and rejected. Raises Temporary or Permanent."""
        body = await _joined(self._call, parts)
        try:
            answer = await self._stub(body, timeout=_LIMIT)
        except grpc.aio.AioRpcError as error:
            code, said = error.code(), one_line(error.details() or "", _QUOTED)
            kind = Temporary if code in _AGAIN and _TOO_LARGE not in said else Permanent
            raise kind(f"{code.name}: {said}", obj=self._endpoint, step="export spans") from error
        if answer is None:
            raise Permanent("the answer is not a message of OTLP", obj=self._endpoint, step="export spans")
        return _rejected(answer)

    async def close(self) -> None:
        await self._channel.close(grace=None)


class HttpSender:
    """OTLP/HTTP with protobuf. Create it in the running loop; end it with close()."""

    def __init__(self, endpoint: str) -> None:
        self._url, self._call = endpoints.traces_url(endpoint), trace_api().calls[EXPORT]
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_LIMIT), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def send(self, parts: Iterable[Json]) -> int:
        """As GrpcSender.send()."""
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "nodewright"}
        body = await _joined(self._call, parts)
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                said = await answer.content.read(_MOST)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Temporary(str(error) or "no answer in time", obj=self._url, step="export spans") from error
        if answer.status != 200:
            kind = Temporary if answer.status in _HTTP_AGAIN else Permanent
            raise kind(f"HTTP {answer.status}", obj=self._url, step="export spans")
        try:
            return _rejected(self._call.decode(said))
        except Exception as error:  # protobuf's own class of errors
            raise Permanent("the answer is not a message of OTLP", obj=self._url, step="export spans") from error

    async def close(self) -> None:
        await self._session.close()


def sender_for(endpoint: str) -> GrpcSender | HttpSender:
    """`endpoint` is one without a problem (endpoints.py); "" is upstream's default."""
    endpoint = endpoint or endpoints.DEFAULT
    return HttpSender(endpoint) if endpoints.is_http(endpoint) else GrpcSender(endpoint)


async def _joined(call: Call, parts: Iterable[Json]) -> bytes:
    """Messages one after the other are one with the lists of all (protobuf.dev/programming-guides/encoding)."""
    encoded = []
    for part in parts:
        encoded.append(call.encode(part))
        await asyncio.sleep(0)
    return b"".join(encoded)


def _rejected(answer: Json) -> int:
    return max(0, int((answer.get("partial_success") or {}).get("rejected_spans") or 0))
