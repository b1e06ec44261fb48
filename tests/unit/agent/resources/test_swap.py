"""Which containers may swap, and how much."""

from __future__ import annotations

from typing import Any

import pytest

from agent.resources.plan.cgroups import Policy
from agent.resources.plan.container_limits import Machine, container_resources
from agent.resources.plan.swap import LIMITED, Swap
from tests.builders.pods import pod
from tests.unit.agent.common.test_demand import asks

GIB = 1 << 30
HERE = Swap(True, LIMITED, total=2 * GIB, memory=8 * GIB)


def unified(container: dict[str, Any], swap: Swap = HERE, version: int = 2, **spec: Any) -> dict[str, str]:
    machine = Machine(memory=8 * GIB, cgroup_version=version, swap=swap)
    made: dict[str, str] = container_resources(pod(container, **spec), container, Policy(), machine).get("unified", {})
    return made


@pytest.mark.parametrize(
    ("container", "spec", "expect"),
    [
        pytest.param(asks(requests={"memory": "1Gi"}), {}, GIB // 4, id="its share of the node's memory"),
        pytest.param(asks(requests={"memory": "1Gi"}, limits={"memory": "2Gi"}), {}, GIB // 4, id="with a limit above"),
        pytest.param(asks(requests={"memory": "1Gi"}, limits={"memory": "1Gi"}), {}, 0, id="all that it may use"),
        pytest.param(asks(requests={"cpu": "1"}), {}, 0, id="asks for no memory"),
        pytest.param(asks(), {}, 0, id="best effort"),
        pytest.param(
            asks(requests={"memory": "1Gi", "cpu": "1"}, limits={"memory": "1Gi", "cpu": "1"}), {}, 0, id="guaranteed"
        ),
        pytest.param(asks(requests={"memory": "1Gi"}), {"priority": 2_000_000_000}, 0, id="critical"),
        pytest.param(asks(requests={"memory": "9Gi"}), {}, 0, id="more than there is"),
    ],
)
def test_limited(container: dict[str, Any], spec: dict[str, Any], expect: int) -> None:
    assert unified(container, **spec)["memory.swap.max"] == str(expect)


@pytest.mark.parametrize("behavior", ["", "NoSwap"])
def test_no_container_swaps_by_default_even_without_a_limit(behavior: str) -> None:
    assert unified(asks(requests={"memory": "1Gi"}), Swap(True, behavior, GIB, GIB))["memory.swap.max"] == "0"


def test_nothing_is_written_where_swap_cannot_be_limited() -> None:
    assert "memory.swap.max" not in unified(asks(requests={"memory": "1Gi"}), Swap(False, LIMITED, GIB, GIB))


def test_v1_limits_memory_and_swap_together() -> None:
    container = asks(requests={"memory": "1Gi"}, limits={"memory": "2Gi"})
    found = container_resources(pod(container), container, Policy(), Machine(8 * GIB, 1, swap=HERE))
    assert found["memory_swap_limit_in_bytes"] == found["memory_limit_in_bytes"] == 2 * GIB
    assert "unified" not in found
