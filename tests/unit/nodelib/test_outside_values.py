"""Times and JSON of others: what the standards allow is read, everything else is one kind of error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.json_values import decode
from nodelib.kube.times import format_micro, format_rfc3339, parse_rfc3339, time_or


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.5+01:00", 0.5),
        ("1970-01-01t00:00:00z", 0),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
        ("0001-01-01T00:00:00Z", -62135596800),
        ("9999-12-31T23:59:59Z", 253402300799),
        ("9999-12-31T23:59:59-10:00", 253402336799),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_rfc3339(text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-01-01", "2026-01-01T00:00:00", "2026W01", "2026-06-30T23:59:60Z", "10000-01-01T00:00:00Z"),
        *("2026-01-01T00:00:00Z\n", "\u0662\u0660\u0662\u0666-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "x" * 10**6),
        *(None, 7, []),
    ],
)
def test_what_is_no_time(text: Any) -> None:
    with pytest.raises(ValueError) as caught:
        parse_rfc3339(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1e300, "9999-12-31T23:59:59Z"),
        (-1e300, "0001-01-01T00:00:00Z"),
        (float("inf"), "9999-12-31T23:59:59Z"),
        (float("nan"), "0001-01-01T00:00:00Z"),
    ],
)
def test_any_number_can_be_shown_as_a_time(seconds: float, text: str) -> None:
    assert format_rfc3339(seconds) == text
    assert format_micro(seconds).startswith(text[:-1])


@given(st.integers(-62135596800, 253402300799))
def test_times_are_read_back(seconds: int) -> None:
    assert parse_rfc3339(format_rfc3339(seconds)) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param('{"a":' * 100_000, id="braces"),
        pytest.param("1" * 5000, id="digits"),
        pytest.param("NaN", id="NaN"),
        pytest.param("[-Infinity]", id="Infinity"),
        pytest.param("1e400", id="1e400"),
        pytest.param('"\\ud800"', id="half a surrogate"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="a surrogate in bytes"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        decode(text)
    assert len(str(caught.value)) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert decode(json.dumps(value)) == decode(json.dumps(value, ensure_ascii=False).encode()) == value


def test_an_order_or_a_metric_takes_what_is_no_time() -> None:
    given: list[object] = ["1970-01-01T00:00:01Z", "yesterday", None, 7, {}]
    assert [time_or(5.0, one) for one in given] == [1.0, 5.0, 5.0, 5.0, 5.0]
