"""A CPU limit of 0: shown as the least quota where a quota is in force, and no limit where a cgroup is written."""

from __future__ import annotations

import pytest

from agent.common.model.pods import ContainerState, RunState
from agent.resources.plan.cgroups import quota
from agent.resources.plan.container_resources import shown_resources


@pytest.mark.parametrize(("limit", "in_force", "expect"), [("0", 1000, "0"), ("5m", 1000, "5m"), ("0", 50_000, "500m")])
def test_a_limit_of_0_stands_for_the_least_quota_in_the_status(limit: str, in_force: int, expect: str) -> None:
    seen = ContainerState(
        "c", "s", "u", "main", 0, RunState.RUNNING, 1, resources={"cpu_quota": in_force, "cpu_period": 100_000}
    )
    assert shown_resources({"limits": {"cpu": limit}}, seen) == {"limits": {"cpu": expect}}


def test_a_limit_of_0_means_no_quota_in_a_cgroup() -> None:
    assert quota(0, 100_000) == 0
