"""Spans as values. Times are wall seconds since the epoch, ids are those of W3C Trace Context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

TRACE_BYTES, SPAN_BYTES = 16, 8


class SpanKind(IntEnum):
    """The numbers of OTLP's Span.SpanKind."""

    INTERNAL = 1
    CLIENT = 3


@dataclass(frozen=True, slots=True)
class SpanContext:
    """One sampled span: `trace` has 16 bytes, `span` 8."""

    trace: bytes
    span: bytes

    @property
    def traceparent(self) -> str:
        """The header that hands this span to another program as the parent of its own."""
        return f"00-{self.trace.hex()}-{self.span.hex()}-01"


@dataclass(frozen=True, slots=True)
class Span:
    """What took `seconds` from `begin` on. `parent` is a span of the same trace, b"" for a root; `error` "": it went
    well. `links` are spans of other traces that it belongs to."""

    context: SpanContext
    name: str
    begin: float
    seconds: float
    parent: bytes = b""
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str = ""
    kind: SpanKind = SpanKind.INTERNAL
    links: tuple[SpanContext, ...] = ()
