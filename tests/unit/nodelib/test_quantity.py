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
