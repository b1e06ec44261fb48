"""Spans as OTLP has them (opentelemetry-proto, trace/v1): as a message for the wire, and as a line of JSON. Pure.

The JSON is that of OTLP/JSON: ids in hex, nanoseconds as text, names in camel case. One line is one export request,
as the collector's file exporter writes and its otlpjsonfile receiver reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

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
    scope = {"scope": {"name": SCOPE}, "spans": [_message_of(span) for span in spans]}
    return {
        "resource_spans": [{"resource": {"attributes": list(_attributes(resource, _wire))}, "scope_spans": [scope]}]
    }


def json_line(resource: Attributes, spans: Iterable[Span]) -> str:
    """One line, without its end."""
    scope = {"scope": {"name": SCOPE}, "spans": [_json_of(span) for span in spans]}
    document = {
        "resourceSpans": [{"resource": {"attributes": list(_attributes(resource, _in_json))}, "scopeSpans": [scope]}]
    }
    return json.dumps(document, separators=(",", ":"))


def _message_of(span: Span) -> Json:
    made: Json = {
        "trace_id": span.context.trace,
        "span_id": span.context.span,
        "parent_span_id": span.parent,
        "flags": _SAMPLED,
        "name": one_line(span.name, _TEXT),
        "kind": int(span.kind),
        "start_time_unix_nano": _nano(span.begin),
        "end_time_unix_nano": _nano(span.begin + max(0.0, span.seconds)),
        "attributes": list(_attributes(span.attributes, _wire)),
        "links": [{"trace_id": one.trace, "span_id": one.span, "flags": _SAMPLED} for one in span.links],
    }
    if span.error:
        made["status"] = {"message": one_line(span.error, _TEXT), "code": _ERROR}
    return made


def _json_of(span: Span) -> Json:
    made: Json = {
        "traceId": span.context.trace.hex(),
        "spanId": span.context.span.hex(),
        "flags": _SAMPLED,
        "name": one_line(span.name, _TEXT),
        "kind": int(span.kind),
        "startTimeUnixNano": str(_nano(span.begin)),
        "endTimeUnixNano": str(_nano(span.begin + max(0.0, span.seconds))),
        "attributes": list(_attributes(span.attributes, _in_json)),
    }
    if span.parent:
        made["parentSpanId"] = span.parent.hex()
    if span.links:
        made["links"] = [{"traceId": one.trace.hex(), "spanId": one.span.hex()} for one in span.links]
    if span.error:
        made["status"] = {"message": one_line(span.error, _TEXT), "code": _ERROR}
    return made


def _attributes(given: Attributes, value_of: Callable[[str | int], Json]) -> Iterable[Json]:
    for key, value in list(given.items())[:_MOST_ATTRIBUTES]:
        yield {"key": key, "value": value_of(one_line(value, _TEXT) if isinstance(value, str) else value)}


def _wire(value: str | int) -> Json:
    return {"string_value" if isinstance(value, str) else "int_value": value}


def _in_json(value: str | int) -> Json:
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def _nano(seconds: float) -> int:
    # To the microsecond: a float of today's time has no more.
    return max(0, round(seconds * 1e6)) * 1000
