"""How long a run of Go still takes."""

from __future__ import annotations

import pytest

from controlplane.binaries.plan.remaining import Load, about, remaining

LOAD = Load({f"p{number}": 1_000_000 for number in range(600)}, links=2)
NAMES = list(LOAD.packages)


def test_before_anything_is_done_the_measured_machine_decides() -> None:
    assert remaining(LOAD, [], 0, 0.0, 1) == pytest.approx(LOAD.seconds)
    assert remaining(LOAD, [], 0, 0.0, 4) == pytest.approx(LOAD.seconds / 4)


@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_it_follows_the_pace_of_this_machine(times: float) -> None:
    half = LOAD.seconds / 4 * times
    assert remaining(LOAD, NAMES[:302], 0, half, 2) == pytest.approx(half, rel=0.35)


def test_it_falls_with_every_package_and_every_link() -> None:
    left = [remaining(LOAD, NAMES[:done], 0, 10.0 + done, 2) for done in range(50, 601, 50)]
    assert left == sorted(left, reverse=True)
    assert remaining(LOAD, NAMES, 2, 300.0, 2) < remaining(LOAD, NAMES, 1, 300.0, 2)


def test_a_large_package_counts_more() -> None:
    load = Load({"large": 9_000_000, "small": 100_000, "a": 1, "b": 1}, links=0)
    after_large = remaining(load, ["large", "a", "b"], 0, 30.0, 2)
    after_small = remaining(load, ["small", "a", "b"], 0, 30.0, 2)
    assert after_large < after_small / 10


def test_lines_that_name_no_package_count_nothing() -> None:
    assert remaining(LOAD, ["# a warning", "go: x"], 0, 5.0, 2) == remaining(LOAD, [], 0, 5.0, 2)
    assert remaining(Load({}, 0), ["x"], 0, 5.0, 0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "about 10 s"), (24, "about 20 s"), (49, "about 50 s"), (70, "about 1 min"), (290, "about 5 min")],
)
def test_the_time_for_people(seconds: float, text: str) -> None:
    assert about(seconds) == text
