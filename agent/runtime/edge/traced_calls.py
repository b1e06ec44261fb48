"""Calls of the CRI as spans, and the current span as their parent in the runtime, which may trace itself.

As upstream's CRI client with otelgrpc (k8s.io/cri-client): the span is named after the method, and `traceparent` goes
along as metadata. Calls that belong to no trace go through untouched.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from nodelib.traces.current import current
from nodelib.traces.model import SPAN_BYTES, Span, SpanContext, SpanKind

_HEADER = "traceparent"


class TracedCalls(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """`sink` takes the span of each call when it has ended."""

    def __init__(self, sink: Callable[[Span], None]) -> None:
        self._sink = sink

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """See grpc.aio.UnaryUnaryClientInterceptor."""
        above = current()
        if above is None:
            return await continuation(details, request)
        context = SpanContext(above.trace, os.urandom(SPAN_BYTES))
        metadata = grpc.aio.Metadata(*(details.metadata or ()), (_HEADER, context.traceparent))
        began, started = time.time(), time.monotonic()
        call = await continuation(details._replace(metadata=metadata), request)
        error = "CANCELLED"
        try:
            code = await call.code()
            error = "" if code is grpc.StatusCode.OK else f"{code.name}: {await call.details() or ''}"
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            took = time.monotonic() - started
            self._sink(
                Span(context, _name(details.method), began, took, above.span, _KIND, error, kind=SpanKind.CLIENT)
            )
        return call


_KIND = {"rpc.system": "grpc"}


def _name(method: Any) -> str:
    return (method.decode() if isinstance(method, bytes) else str(method)).lstrip("/")
