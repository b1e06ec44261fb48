"""What a span is on the wire and as JSON, against bytes that the official package opentelemetry-proto 1.45.2 made."""

import json

import pytest

from nodelib.traces import endpoints, otlp, sampling
from nodelib.traces.model import Span, SpanContext, SpanKind
from nodelib.traces.wire import EXPORT, trace_api

SPAN = Span(
    SpanContext(bytes(range(16)), b"12345678"),
    "CNI ADD",
    1_700_000_000.25,
    1.25,
    b"abcdefgh",
    {"k8s.pod.name": "web-0", "k8s.container.restart_count": 0},
    error="no network",
    kind=SpanKind.CLIENT,
    links=(SpanContext(b"t" * 16, b"s" * 8),),
)
RESOURCE = {"service.name": "kubelet"}
OFFICIAL = bytes.fromhex(
    "0ae9010a1b0a190a0c736572766963652e6e616d6512090a076b7562656c657412c9010a0c0a0a6e6f646577726967687412"
    "b8010a10000102030405060708090a0b0c0d0e0f12083132333435363738220861626364656667682a07434e492041444430"
    "033980b21045fe9c971741002f928ffe9c97174a170a0c6b38732e706f642e6e616d6512070a057765622d304a210a1b6b38"
    "732e636f6e7461696e65722e726573746172745f636f756e74120218006a210a107474747474747474747474747474747412"
    "08737373737373737335010000007a0e120a6e6f206e6574776f726b1802850101000000"
)


def test_a_request_has_the_bytes_of_the_official_package() -> None:
    call = trace_api().calls[EXPORT]
    assert call.path == "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    official = call.request.FromString(OFFICIAL)
    assert call.request.FromString(call.encode(otlp.message(RESOURCE, [SPAN]))) == official
    official.DiscardUnknownFields()  # what is not described
    assert official.SerializeToString() == OFFICIAL


def test_an_answer_of_the_official_package_is_understood() -> None:
    answer = trace_api().calls[EXPORT].decode(bytes.fromhex("0a050803120178"))
    assert answer["partial_success"] == {"rejected_spans": 3, "error_message": "x"}


def test_a_line_of_json_has_ids_in_hex_and_nanoseconds_as_text() -> None:
    line = otlp.json_line(RESOURCE, [SPAN])
    assert "\n" not in line
    (group,) = json.loads(line)["resourceSpans"]
    assert group["resource"] == {"attributes": [{"key": "service.name", "value": {"stringValue": "kubelet"}}]}
    (span,) = group["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["spanId"]) == ("000102030405060708090a0b0c0d0e0f", b"12345678".hex())
    assert span["parentSpanId"] == b"abcdefgh".hex()
    assert (span["startTimeUnixNano"], span["endTimeUnixNano"]) == ("1700000000250000000", "1700000001500000000")
    assert span["attributes"][1] == {"key": "k8s.container.restart_count", "value": {"intValue": "0"}}
    assert (span["kind"], span["status"]) == (3, {"message": "no network", "code": 2})


def test_texts_of_others_are_bounded_and_in_one_line() -> None:
    hostile = Span(SPAN.context, "n" * 9999, 1.0, -5.0, attributes={"k": "\x1b[2J\n" * 9999}, error="e\n" * 9999)
    line = otlp.json_line({}, [hostile])
    assert len(line) < 5000 and "\x1b" not in line and "\\u001b" not in line
    (span,) = otlp.message({}, [hostile])["resource_spans"][0]["scope_spans"][0]["spans"]
    assert span["end_time_unix_nano"] == span["start_time_unix_nano"]


@pytest.mark.parametrize(
    ("trace", "rate", "sampled"),
    [
        (bytes(16), 0, False),
        (bytes(16), 1, True),
        (b"\xff" * 16, 999_999, False),
        (b"\xff" * 16, 1_000_000, True),
        # TraceIDRatioBased(0.25) keeps what is below a quarter of 2^63 in its last 8 bytes, halved.
        (bytes(8) + (0x3FFFFFFFFFFFFFFF).to_bytes(8), 250_000, True),
        (bytes(8) + (0x4000000000000000).to_bytes(8), 250_000, False),
    ],
)
def test_sampling_decides_as_the_go_sdk_does(trace: bytes, rate: int, sampled: bool) -> None:
    assert sampling.is_sampled(trace, rate) is sampled


def test_the_share_of_pods_that_is_sampled_is_the_rate() -> None:
    found = sum(sampling.is_sampled(sampling.trace_id("pod start", f"uid-{n}"), 100_000) for n in range(5000))
    assert 400 < found < 600


@pytest.mark.parametrize(
    ("endpoint", "fault"),
    [
        ("localhost:4317", ""),
        ("10.0.0.1:4317", ""),
        ("[fd00::1]:4317", ""),
        ("dns://8.8.8.8/collector:4317", ""),
        ("unix:///run/otel.sock", ""),
        ("http://collector:4318", ""),
        ("https://collector/v1/traces", ""),
        ("ftp://collector", "unsupported scheme ftp"),
        ("http://", "names no host"),
        ("collector:99999", "Port out of range"),
        ("a b", "is not an address"),
        ("x" * 2000, "is not an address"),
    ],
)
def test_endpoints(endpoint: str, fault: str) -> None:
    assert fault in endpoints.problem(endpoint) if fault else not endpoints.problem(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/x", "https://c/otlp/x"),
    ],
)
def test_the_path_of_otlp_is_added_where_there_is_none(endpoint: str, url: str) -> None:
    assert endpoints.traces_url(endpoint) == url
