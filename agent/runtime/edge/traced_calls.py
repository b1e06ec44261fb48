"""Calls of the CRI as spans, and the current span as their parent in the runtime, which may trace itself.

As upstream's CRI client with otelgrpc (k8s.io/cri-client): the span is named after the method, and `traceparent` goes
along as metadata. Calls that belong to no trace go through untouched. gRPC's interceptors do the same with a task and
several futures for each call, traced or not.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc.aio

from nodelib.traces.current import current
from nodelib.traces.model import SPAN_BYTES, Span, SpanContext, SpanKind

_HEADER = "traceparent"
_KIND = {"rpc.system": "grpc"}
Sink = Callable[[Callable[[], Span]], None]


class TracedChannel:
    """What the generated stubs ask of a channel. `sink` takes what makes the span of a unary call that has ended."""

    def __init__(self, channel: grpc.aio.Channel, sink: Sink) -> None:
        self._channel, self._sink = channel, sink
        # A span's id has to differ from others of its trace: counting costs less than asking the kernel for each.
        self._numbers = itertools.count(int.from_bytes(os.urandom(SPAN_BYTES)) >> 1 | 1)

    def unary_unary(self, method: str, *words: Any, **options: Any) -> Callable[..., Any]:
        """As grpc.aio.Channel.unary_unary(); what a call returns can be awaited, and has nothing else."""
        ask, name = self._channel.unary_unary(method, *words, **options), method.lstrip("/")

        def call(request: Any, *, timeout: float | None = None) -> Any:
            above = current()
            if above is None:
                return ask(request, timeout=timeout)
            context = SpanContext(above.trace, next(self._numbers).to_bytes(SPAN_BYTES))
            return _traced(ask, request, timeout, (name, context, above.span), self._sink)

        return call

    def unary_stream(self, method: str, *words: Any, **options: Any) -> Any:
        """As grpc.aio.Channel.unary_stream(): streams are no spans."""
        return self._channel.unary_stream(method, *words, **options)


async def _traced(
    ask: Any, request: Any, timeout: float | None, what: tuple[str, SpanContext, bytes], sink: Sink
) -> Any:
    """`what`: the span's name, its context, and its parent."""
    name, context, parent = what
    began, started = time.time(), time.monotonic()
    error = "CANCELLED"
    try:
        answer = await ask(request, timeout=timeout, metadata=((_HEADER, context.traceparent),))
        error = ""
        return answer
    except grpc.aio.AioRpcError as failure:
        error = f"{failure.code().name}: {failure.details() or ''}"
        raise
    finally:
        took = time.monotonic() - started
        sink(partial(Span, context, name, began, took, parent, _KIND, error, SpanKind.CLIENT))
