"""Whether a volume must grow, and the patches of its claim."""

from __future__ import annotations

from typing import Any

import pytest

from agent.volumes.plan import expand as plan
from nodelib.json_values import Json


def claim(asked: str, has: str, **status: Any) -> Json:
    return {
        "spec": {"resources": {"requests": {"storage": asked}}},
        "status": {"capacity": {"storage": has}, **status},
    }


def volume(size: str) -> Json:
    return {"spec": {"capacity": {"storage": size}}}


@pytest.mark.parametrize(
    ("state", "size", "expected"),
    [
        pytest.param("", "1Gi", 0, id="it has the whole volume"),
        pytest.param("", "2Gi", 2 << 30, id="the volume has grown"),
        pytest.param("NodeResizePending", "2Gi", 2 << 30, id="it waits for the node"),
        pytest.param("NodeResizeInProgress", "2Gi", 2 << 30, id="an earlier run of the agent has begun"),
        pytest.param("NodeResizeInfeasible", "2Gi", 0, id="refused for good"),
        pytest.param("ControllerResizeInProgress", "2Gi", 0, id="the controller works on it"),
    ],
)
def test_wanted_size(state: str, size: str, expected: int) -> None:
    one = claim("2Gi", "1Gi", allocatedResourceStatuses={"storage": state})
    assert plan.wanted_size(one, volume(size)) == expected


def test_claims_that_ask_for_more() -> None:
    assert plan.asks_for_more(claim("2Gi", "1Gi")) and not plan.asks_for_more(claim("1Gi", "1Gi"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param("", False, id="not yet"),
        pytest.param("NodeResizePending", False, id="the node has not begun"),
        pytest.param("NodeResizeInProgress", True, id="it has"),
    ],
)
def test_whether_the_claim_says_that_it_grows(state: str, expected: bool) -> None:
    assert plan.is_in_progress(claim("2Gi", "1Gi", allocatedResourceStatuses={"storage": state})) is expected
    assert plan.is_in_progress(claim("2Gi", "1Gi") | plan.in_progress())


def test_done_removes_conditions_of_the_resize() -> None:
    one = claim("2Gi", "1Gi", conditions=[{"type": "FileSystemResizePending"}, {"type": "Other"}])
    status = plan.done(one, volume("2Gi"))["status"]
    assert status["capacity"] == {"storage": "2Gi"} and status["allocatedResourceStatuses"] == {"storage": None}
    assert {"type": "FileSystemResizePending", "$patch": "delete"} in status["conditions"]
    assert {"type": "Other"} in status["conditions"]


def test_an_infeasible_resize() -> None:
    status = plan.infeasible(claim("2Gi", "1Gi"), "too big", "2026-01-01T00:00:00Z")["status"]
    assert status["allocatedResourceStatuses"] == {"storage": "NodeResizeInfeasible"}
    assert status["conditions"][0]["message"] == "failed to expand pvc with too big"
    assert plan.is_infeasible("OUT_OF_RANGE") and not plan.is_infeasible("INTERNAL")


def test_a_failed_resize_is_said_once() -> None:
    """MergeResizeConditionOnPVC keeps the condition that is there, and only its status matters."""
    patch = plan.failed(claim("2Gi", "1Gi"), "no", "2026-01-01T00:00:00Z")
    assert patch is not None
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("NodeResizeError", "True")
    said = claim("2Gi", "1Gi", conditions=[condition])
    assert plan.failed(said, "another", "2026-01-01T00:00:01Z") is None
    assert "conditions" not in plan.infeasible(said, "another", "2026-01-01T00:00:01Z")["status"]
    again = claim("2Gi", "1Gi", conditions=[condition | {"status": "False"}])
    assert plan.failed(again, "no", "2026-01-01T00:00:01Z") is not None
