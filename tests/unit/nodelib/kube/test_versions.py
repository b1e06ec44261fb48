"""resourceVersions as numbers."""

from __future__ import annotations

import pytest

from nodelib.kube.versions import is_lower_for_good, version_of


@pytest.mark.parametrize(
    ("version", "number"),
    [("12", 12), ("", 0), ("a1", 0), (None, 0)],
    ids=["number", "empty", "no number", "none"],
)
def test_what_is_no_number_is_the_oldest(version: object, number: int) -> None:
    assert version_of({"metadata": {"resourceVersion": version}}) == number


@pytest.mark.parametrize(
    ("version", "seconds", "counts"),
    [(4, 61.0, True), (4, 60.0, False), (5, 61.0, False), (6, 61.0, False), (0, 61.0, False)],
    ids=["restored", "behind", "the same", "higher", "none"],
)
def test_a_lower_version_counts_after_a_minute(version: int, seconds: float, counts: bool) -> None:
    assert is_lower_for_good(version, 5, seconds) is counts
