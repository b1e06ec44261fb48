"""OTLP's trace service as messages (opentelemetry-proto 1.x, collector/trace/v1), for `plugin_apis/wire.py`.

All messages stand in the service's package, which is the same on the wire. Only what is written here is described; a
receiver skips nothing of it, and what it answers beyond it is skipped here.
"""

from __future__ import annotations

from nodelib.plugin_apis.wire import Api

EXPORT = "TraceService.Export"
_PROTO = """
    AnyValue: string_value string?, int_value int64? @3
    KeyValue: key string, value AnyValue
    Resource: attributes [KeyValue]
    Scope: name string, version string
    Status: message string @2, code int32 @3
    Link: trace_id bytes, span_id bytes, flags fixed32 @6
    Span: trace_id bytes, span_id bytes, parent_span_id bytes @4, name string @5, kind int32 @6, \
start_time_unix_nano fixed64 @7, end_time_unix_nano fixed64 @8, attributes [KeyValue] @9, links [Link] @13, \
status Status @15, flags fixed32 @16
    ScopeSpans: scope Scope, spans [Span]
    ResourceSpans: resource Resource, scope_spans [ScopeSpans]
    ExportRequest: resource_spans [ResourceSpans]
    PartialSuccess: rejected_spans int64, error_message string
    ExportResponse: partial_success PartialSuccess
    rpc TraceService.Export ExportRequest ExportResponse
"""


def trace_api() -> Api:
    """The messages and the one call; it takes a few milliseconds to make."""
    return Api("opentelemetry.proto.collector.trace.v1", _PROTO)
