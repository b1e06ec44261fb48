"""Log options, the choice of the container, and the line filter: tables and properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.logs.model import LogOptions
from agent.logs.plan.log_lines import LineFilter, timestamp_ns
from agent.logs.plan.log_options import InvalidQuery, container_id, parse_options
from nodelib.errors import NodewrightError
from tests.builders.pods import container_status

_NOW = 1_800_000_000.0
_T = "2026-01-02T03:04:05"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, LogOptions()),
        ({"follow": "true", "timestamps": "1"}, LogOptions(follow=True, timestamps=True)),
        ({"follow": "false", "previous": ""}, LogOptions(previous=True)),
        ({"tailLines": "5"}, LogOptions(tail_lines=5)),
        ({"tail": "7"}, LogOptions(tail_lines=7)),
        ({"tail": "all", "tailLines": "7"}, LogOptions()),
        ({"tailLines": "0"}, LogOptions(tail_lines=0)),
        ({"limitBytes": "1"}, LogOptions(limit_bytes=1)),
        ({"sinceSeconds": "10"}, LogOptions(since=1_799_999_990_000_000_000)),
        ({"sinceTime": "2027-01-15T08:00:00.5Z"}, LogOptions(since=1_800_000_000_500_000_000)),
        ({"stream": "Stderr"}, LogOptions(stream="Stderr")),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_parse_options(query: dict[str, str], expected: LogOptions) -> None:
    assert parse_options(query, _NOW) == expected


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"tailLines": "x"}, 400),
        ({"sinceTime": "yesterday"}, 400),
        ({"sinceTime": "2026-01-02T03:04:05.Z"}, 400),
        ({"limitBytes": "1.5"}, 400),
        ({"tailLines": "-1"}, 422),
        ({"limitBytes": "0"}, 422),
        ({"sinceSeconds": "0"}, 422),
        ({"sinceSeconds": "5", "sinceTime": "2026-01-02T03:04:05Z"}, 422),
        ({"stream": "stdout"}, 422),
        ({"stream": "Stdout", "tailLines": "3"}, 422),
    ],
    ids=str,
)
def test_bad_options(query: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse_options(query, _NOW)
    assert caught.value.status == status


def _status(state: dict[str, Any], last: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [container_status("c", state, lastState=last or {}, **fields)]}


_ENDED = {"terminated": {"containerID": "containerd://old", "exitCode": 1}}


@pytest.mark.parametrize(
    ("status", "previous", "expected"),
    [
        (_status({"running": {}}, containerID="containerd://now"), False, "containerd://now"),
        (_status({"running": {}}, _ENDED, containerID="containerd://now"), True, "containerd://old"),
        (_status({"terminated": {"containerID": "containerd://end"}}), False, "containerd://end"),
        (_status({"terminated": {}}, _ENDED), False, "containerd://old"),
        (_status({"waiting": {"reason": "CrashLoopBackOff"}}, _ENDED), False, "containerd://old"),
        ({"initContainerStatuses": [{"name": "c", "state": {"running": {}}, "containerID": "x://i"}]}, False, "x://i"),
        (
            {"ephemeralContainerStatuses": [{"name": "c", "state": {"running": {}}, "containerID": "x://e"}]},
            False,
            "x://e",
        ),
    ],
    ids=["running", "previous", "ended", "ended unstarted", "backing off", "init", "ephemeral"],
)
def test_container_id(status: dict[str, Any], previous: bool, expected: str) -> None:
    assert container_id("p", status, "c", previous) == expected


@pytest.mark.parametrize(
    ("status", "previous", "message"),
    [
        ({}, False, 'container "c" in pod "p" is not available'),
        (_status({"running": {}}, containerID="x://a"), True, 'previous terminated container "c" in pod "p" not found'),
        (_status({"terminated": {}}), False, 'container "c" in pod "p" is terminated'),
        (
            _status({"waiting": {"reason": "ContainerCreating"}}),
            False,
            'container "c" in pod "p" is waiting to start: ContainerCreating',
        ),
        (
            _status({"waiting": {"reason": "ErrImagePull"}}),
            False,
            'container "c" in pod "p" is waiting to start: image can\'t be pulled',
        ),
        (
            _status({"waiting": {"reason": "ImagePullBackOff"}}),
            False,
            'container "c" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        (_status({}), False, 'container "c" in pod "p" is waiting to start - no logs yet'),
    ],
    ids=["unknown", "no previous", "ended without id", "creating", "pull failed", "pull back-off", "no state"],
)
def test_no_log(status: dict[str, Any], previous: bool, message: str) -> None:
    with pytest.raises(NodewrightError) as caught:
        container_id("p", status, "c", previous)
    assert caught.value.message == message


def _line(second: str, stream: str, tag: str, content: str) -> bytes:
    return f"{_T[:-2]}{second} {stream} {tag} {content}\n".encode()


_LOG = (
    _line("05.5Z", "stdout", "F", "one")
    + _line("06Z", "stderr", "F", "two")
    + _line("07.25Z", "stdout", "P", "par")
    + _line("08.25Z", "stdout", "F", "tial")
    + _line("09.000000001Z", "stdout", "F", "")
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogOptions(), b"one\ntwo\npartial\n\n"),
        (LogOptions(stream="Stdout"), b"one\npartial\n\n"),
        (LogOptions(stream="Stderr"), b"two\n"),
        (LogOptions(limit_bytes=6), b"one\ntw"),
        (LogOptions(limit_bytes=100), b"one\ntwo\npartial\n\n"),
        (LogOptions(since=timestamp_ns(f"{_T[:-2]}06Z".encode())), b"two\npartial\n\n"),
        (LogOptions(since=timestamp_ns(f"{_T[:-2]}09.000000001Z".encode())), b"\n"),
        (
            LogOptions(timestamps=True),
            f"{_T}.500000000Z one\n{_T[:-2]}06.000000000Z two\n{_T[:-2]}07.250000000Z partial\n"
            f"{_T[:-2]}09.000000001Z \n".encode(),
        ),
        (LogOptions(timestamps=True, limit_bytes=25), f"{_T}.50000".encode()),
    ],
    ids=["all", "stdout", "stderr", "cut", "limit not reached", "since", "since exact", "timestamps", "cut stamp"],
)
def test_line_filter(options: LogOptions, expected: bytes) -> None:
    wanted = LineFilter(options)
    assert wanted.feed(_LOG) == expected
    assert wanted.malformed == 0
    assert wanted.done is (options.limit_bytes is not None and len(expected) == options.limit_bytes)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"2026-01-02T03:04:05Z stdout F\n",
        b"2026-01-02T03:04:05Z stdin F x\n",
        b"2026-13-02T03:04:05Z stdout F x\n",
        b"\xff\xfe stdout F x\n",
        b"\n",
    ],
)
def test_what_is_no_log_line_is_left_out(line: bytes) -> None:
    wanted = LineFilter(LogOptions())
    assert wanted.feed(_line("05Z", "stdout", "F", "a") + line + _line("06Z", "stdout", "F", "b")) == b"a\nb\n"
    assert wanted.malformed == 1


def test_an_offset_is_a_time_too() -> None:
    line = b"2026-01-02T03:04:05.123456789+02:00 stdout F x\n"
    assert LineFilter(LogOptions(timestamps=True)).feed(line) == b"2026-01-02T03:04:05.123456789+02:00 x\n"
    assert LineFilter(LogOptions(since=timestamp_ns(b"2026-01-02T02:00:00Z"))).feed(line) == b""


_GOOD = b"2026-01-02T03:04:05"


@pytest.mark.parametrize("time", [_GOOD + b".abcZ", _GOOD + b"+99:99", _GOOD * 300 + b"Z", b"\xff" * 19 + b"Z"])
def test_a_time_that_only_begins_like_one_is_none(time: bytes) -> None:
    """After a good one of the same second it was taken for one, and `kubectl logs --since` ended in the middle."""
    lines = b"2026-01-02T03:04:05.5Z stdout F a\n%s stdout F b\n2026-01-02T03:04:05.5Z stdout F c\n" % time
    wanted = LineFilter(LogOptions(since=0))
    assert (wanted.feed(lines), wanted.malformed) == (b"a\nc\n", 1)


_CONTENT = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"?"))
_ENTRY = st.tuples(st.sampled_from([b"stdout", b"stderr"]), st.sampled_from([b"P", b"F", b"F:x"]), _CONTENT)


@given(st.lists(_ENTRY, max_size=30), st.data())
def test_content_comes_out_byte_for_byte_however_the_lines_are_handed_in(
    entries: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    lines = [b"2026-01-02T03:04:05Z %s %s %s\n" % entry for entry in entries]
    expected = b"".join(text + (b"" if tag == b"P" else b"\n") for _, tag, text in entries)
    wanted, out = LineFilter(LogOptions()), b""
    while lines:
        count = data.draw(st.integers(1, len(lines)))
        out += wanted.feed(b"".join(lines[:count]))
        del lines[:count]
    assert out == expected


@given(st.lists(_ENTRY, min_size=1, max_size=20), st.integers(1, 300))
def test_limit_is_exact(entries: list[tuple[bytes, bytes, bytes]], limit: int) -> None:
    lines = b"".join(b"2026-01-02T03:04:05Z %s %s %s\n" % entry for entry in entries)
    whole = LineFilter(LogOptions()).feed(lines)
    assert LineFilter(LogOptions(limit_bytes=limit)).feed(lines) == whole[:limit]
