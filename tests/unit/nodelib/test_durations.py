"""Durations as sentences, estimates and columns have them."""

from __future__ import annotations

import pytest

from nodelib.durations import age, roughly, span


@pytest.mark.parametrize(
    ("seconds", "expect"),
    [
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (9, "9 s"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (3605, "1 h"),
        (180000, "2 d 2 h"),
    ],
)
def test_spans(seconds: float, expect: str) -> None:
    assert span(seconds) == expect


@pytest.mark.parametrize(
    ("seconds", "expect"),
    [(0, "1 s"), (31.6, "32 s"), (119, "119 s"), (270, "4 min"), (7199, "120 min"), (7200, "2 h"), (200000, "2 d")],
)
def test_estimates(seconds: float, expect: str) -> None:
    assert roughly(seconds) == expect


@pytest.mark.parametrize(
    ("seconds", "expect"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (450, "7m30s"), (7200, "2h"), (7290, "2h1m"), (90061, "1d1h"), (-5, "0s")],
)
def test_ages(seconds: float, expect: str) -> None:
    assert age(seconds) == expect
