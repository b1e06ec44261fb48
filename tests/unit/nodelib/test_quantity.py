"""Kubernetes quantities are parsed, rounded and printed exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib import quantity
from nodelib.errors import Invalid

CASES = [
    ("0", 0, 0),
    ("1", 1, 1000),
    ("100m", 1, 100),
    ("1500m", 2, 1500),
    ("0.1", 1, 100),
    (".5", 1, 500),
    ("1.", 1, 1000),
    ("1Ki", 1024, 1024000),
    ("1.5Gi", 1610612736, 1610612736000),
    ("2e3", 2000, 2000000),
    ("2E3", 2000, 2000000),
    ("1E", 10**18, 10**21),
    ("5n", 1, 1),
    ("-100m", -1, -100),
    ("+2k", 2000, 2000000),
]


@pytest.mark.parametrize(("text", "whole", "thousandths"), CASES, ids=[case[0] for case in CASES])
def test_value_and_milli_round_away_from_zero(text: str, whole: int, thousandths: int) -> None:
    assert quantity.value(text) == whole
    assert quantity.milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1KiB", "0x10", "1e", "--1", "١", "NaN", "inf"])
def test_refused_with_an_error_that_shows_the_text(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        quantity.parse(text)
    assert repr(text) in str(caught.value)


@given(st.integers(min_value=0, max_value=2**60))
def test_formats_read_back(number: int) -> None:
    assert quantity.value(quantity.format_bytes(number)) == number
    assert quantity.milli(quantity.format_milli(number)) == number


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("1024", "1Ki"),
        ("1.5Gi", "1536Mi"),
        ("100000000", "100M"),
        ("1000", "1k"),
        ("10m", "10m"),
        ("0.0105", "10500u"),
        ("7", "7"),
        ("0.0000000001", "1n"),
    ],
)
def test_exact_amounts_are_written_as_the_api_server_would(text: str, canonical: str) -> None:
    assert quantity.format_exact(quantity.parse(text)) == canonical


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        assert isinstance(quantity.parse(text), Decimal)
    except Invalid:
        pass


EXPONENTS = st.one_of(st.integers(-(10**9), 10**9), st.integers(-40, 40))
DIGITS = st.one_of(st.text("0123456789", max_size=40), st.integers(0, 3000).map(lambda many: "9" * many))


@given(st.sampled_from(["", "+", "-"]), DIGITS, st.sampled_from(["", "."]), DIGITS, st.one_of(st.none(), EXPONENTS))
def test_fuzz_quantity(sign: str, whole: str, dot: str, fraction: str, exponent: int | None) -> None:
    """Whatever a parse accepts is an int64 of billionths: all arithmetic with it costs the same."""
    text = f"{sign}{whole}{dot}{fraction}" + ("" if exponent is None else f"e{exponent}")
    try:
        found = quantity.parse(text)
    except Invalid as error:
        assert len(str(error)) < 400
        return
    _, digits, scale = found.as_tuple()
    assert abs(found) <= quantity.LARGEST and len(digits) <= 28 and isinstance(scale, int) and -9 <= scale <= 0
    assert abs(quantity.value(text)) <= quantity.LARGEST


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1e30", quantity.LARGEST),
        ("-1e30", -quantity.LARGEST),
        ("9" * 60, quantity.LARGEST),
        ("1000Ei", quantity.LARGEST),
        ("1e-30", 1),
        ("-1e-30", -1),
        ("0e30", 0),
        pytest.param(10**5000, quantity.LARGEST, id="an int of 5001 digits"),
    ],
)
def test_an_amount_out_of_range_is_the_largest_or_the_smallest(text: str | int, whole: int) -> None:
    assert quantity.value(text) == whole


@pytest.mark.parametrize(
    "text", ["1e600000", "1e3000000", "1e-600000", "0e31", "1E4294967296", "1e" + "9" * 30, "1" * 101, "0" * 4000]
)
def test_what_no_quantity_can_be_is_refused_before_any_arithmetic(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        quantity.parse(text)
    assert len(str(caught.value)) < 300


def test_less_than_a_billionth_is_a_billionth() -> None:
    assert quantity.parse("1.0000000001") == Decimal("1.000000001")
    assert quantity.format_exact(quantity.parse("1e-20")) == "1n"


@pytest.mark.parametrize("text", ["1\n", "1Gi\n", "1e3\n"])
def test_a_newline_at_the_end_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        quantity.parse(text)
