"""In which order pods are stopped when the machine shuts down, and how long each group has."""

from __future__ import annotations

import pytest

from agent.node.plan.shutdown import Period, groups, periods, termination
from nodelib.json_values import Json
from tests.builders.pods import pod

CRITICAL = 2_000_000_000
CLASSES = (Period(0, 10), Period(1000, 20), Period(CRITICAL, 30))


@pytest.mark.parametrize(
    ("by_priority", "whole", "critical", "expect"),
    [
        pytest.param([], 0, 0, (), id="nothing configured"),
        pytest.param([], 30, 10, (Period(0, 20), Period(CRITICAL, 10)), id="two groups"),
        pytest.param([], 30, 0, (Period(0, 30), Period(CRITICAL, 0)), id="nothing for critical ones"),
        pytest.param([Period(5, 1), Period(-5, 2)], 0, 0, (Period(-5, 2), Period(5, 1)), id="by priority, sorted"),
    ],
)
def test_periods(by_priority: list[Period], whole: float, critical: float, expect: tuple[Period, ...]) -> None:
    assert periods(by_priority, whole, critical) == expect


@pytest.mark.parametrize(
    ("priority", "seconds"),
    [(-7, 10), (0, 10), (999, 10), (1000, 20), (CRITICAL - 1, 20), (CRITICAL, 30), (CRITICAL + 1000, 30)],
)
def test_a_pod_belongs_to_the_highest_period_that_is_not_above_it(priority: int, seconds: int) -> None:
    (found,) = groups(CLASSES, [pod(priority=priority)])
    assert found.seconds == seconds


def test_low_priorities_go_first_and_empty_groups_take_no_time() -> None:
    high, low = pod(priority=CRITICAL, meta={"uid": "h"}), pod(meta={"uid": "l"})
    assert [[one.uid for one in group.pods] for group in groups(CLASSES, [high, low])] == [["l"], ["h"]]


@pytest.mark.parametrize(
    ("own", "expect"), [(5, 5), (60, 10), (None, 10), (0, 0)], ids=["less", "more", "none", "zero"]
)
def test_grace(own: int | None, expect: int) -> None:
    spec: Json = {} if own is None else {"terminationGracePeriodSeconds": own}
    found = termination(pod(**spec), 10)
    assert (found.grace, found.reason, found.disrupted) == (expect, "Terminated", True)
    assert found.message == "Pod was terminated in response to imminent node shutdown."
