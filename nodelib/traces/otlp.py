"""Spans as OTLP has them (opentelemetry-proto, trace/v1): as a message for the wire, and as a line of JSON. Pure.

The JSON is that of OTLP/JSON: ids in hex, nanoseconds as text, names in camel case. One line is one export request,
as the collector's file exporter writes and its otlpjsonfile receiver reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from nodelib.json_values import Json
from nodelib.text import one_line
from nodelib.traces.model import Span

Attributes = Mapping[str, str | int]
_TEXT = 1024  # bytes of an attribute or a status message
_ERROR = 2
_SAMPLED = 1  # W3C trace flags
_MOST_ATTRIBUTES = 32
SCOPE = "nodewright"


def message(resource: Attributes, spans: Iterable[Span]) -> Json:
    """ExportTraceServiceRequest, in the field names of the .proto files."""
    write = _Writer(_wire)
    scope = {"scope": {"name": SCOPE}, "spans": [_message_of(span, write) for span in spans]}
    return {"resource_spans": [{"resource": {"attributes": write(resource)}, "scope_spans": [scope]}]}


def json_line(resource: Attributes, spans: Iterable[Span]) -> str:
    """One line, without its end."""
    write = _Writer(_in_json)
    scope = {"scope": {"name": SCOPE}, "spans": [_json_of(span, write) for span in spans]}
    document = {"resourceSpans": [{"resource": {"attributes": write(resource)}, "scopeSpans": [scope]}]}
    return json.dumps(document, separators=(",", ":"))


class _Writer:
    """Writes attributes. Most of a batch's have been written for a span before: each is made once for a request."""

    def __init__(self, value_of: Callable[[str | int], Json]) -> None:
        self._value_of = value_of
        self._made: dict[tuple[str, str | int], Json] = {}

    def __call__(self, given: Attributes) -> list[Json]:
        made = self._made
        return [made.get(item) or self._new(item) for item in islice(given.items(), _MOST_ATTRIBUTES)]

    def _new(self, item: tuple[str, str | int]) -> Json:
        key, value = item
        known = self._made[item] = {
            "key": key,
            "value": self._value_of(one_line(value, _TEXT) if isinstance(value, str) else value),
        }
        return known


def _message_of(span: Span, write: _Writer) -> Json:
    made: Json = {
        "trace_id": span.context.trace,
        "span_id": span.context.span,
        "parent_span_id": span.parent,
        "flags": _SAMPLED,
        "name": one_line(span.name, _TEXT),
        "kind": int(span.kind),
        "start_time_unix_nano": _nano(span.begin),
        "end_time_unix_nano": _nano(span.begin + max(0.0, span.seconds)),
        "attributes": write(span.attributes),
    }
    if span.links:
        made["links"] = [{"trace_id": one.trace, "span_id": one.span, "flags": _SAMPLED} for one in span.links]
    if span.error:
        made["status"] = {"message": one_line(span.error, _TEXT), "code": _ERROR}
    return made


def _json_of(span: Span, write: _Writer) -> Json:
    made: Json = {
        "traceId": span.context.trace.hex(),
        "spanId": span.context.span.hex(),
        "flags": _SAMPLED,
        "name": one_line(span.name, _TEXT),
        "kind": int(span.kind),
        "startTimeUnixNano": str(_nano(span.begin)),
        "endTimeUnixNano": str(_nano(span.begin + max(0.0, span.seconds))),
        "attributes": write(span.attributes),
    }
    if span.parent:
        made["parentSpanId"] = span.parent.hex()
    if span.links:
        made["links"] = [{"traceId": one.trace.hex(), "spanId": one.span.hex()} for one in span.links]
    if span.error:
        made["status"] = {"message": one_line(span.error, _TEXT), "code": _ERROR}
    return made


def _wire(value: str | int) -> Json:
    return {"string_value" if isinstance(value, str) else "int_value": value}


def _in_json(value: str | int) -> Json:
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def _nano(seconds: float) -> int:
    # To the microsecond: a float of today's time has no more.
    return max(0, round(seconds * 1e6)) * 1000
