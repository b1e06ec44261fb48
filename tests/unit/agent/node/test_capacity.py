"""What the machine has and pods may use: the cases of upstream's setters_test and node_container_manager_test."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from agent.node.plan import capacity as plan
from nodelib.errors import Permanent
from nodelib.json_values import Json
from tests.unit.agent.node.node_status import GIB, MACHINE, POLICY, inputs, status


def test_capacity_and_allocatable() -> None:
    found = status()
    assert found["capacity"] == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    assert found["allocatable"] == {"cpu": "4", "memory": "8092Mi", "ephemeral-storage": "90Gi", "pods": "110"}


@pytest.mark.parametrize(
    ("changes", "expect"),
    [
        pytest.param(
            {"kube_reserved": {"cpu": "500m"}, "system_reserved": {"cpu": "100m"}}, {"cpu": "3400m"}, id="reserved"
        ),
        pytest.param({"kube_reserved": {"memory": "1Gi"}, "eviction_hard": {}}, {"memory": "7Gi"}, id="memory"),
        pytest.param({"kube_reserved": {"cpu": "9"}}, {"cpu": "0"}, id="never negative"),
        pytest.param({"eviction_hard": {"memory.available": "50%"}}, {"memory": "4Gi"}, id="percentage"),
        pytest.param({"pods_per_core": 10}, {"pods": "40"}, id="pods per core"),
        pytest.param({"pods_per_core": 100}, {"pods": "110"}, id="pods per core, capped"),
    ],
)
def test_reservations(changes: Json, expect: Json) -> None:
    found = status(policy=dataclasses.replace(POLICY, **changes))["allocatable"]
    assert {name: found[name] for name in expect} == expect


def test_huge_pages_take_memory() -> None:
    machine = dataclasses.replace(MACHINE, hugepages={2 << 20: GIB, GIB: 0})
    found = status(inputs(machine=machine), policy=dataclasses.replace(POLICY, eviction_hard={}))
    assert found["capacity"]["hugepages-2Mi"] == "1Gi" and found["capacity"]["hugepages-1Gi"] == "0"
    assert found["allocatable"]["memory"] == "7Gi"


def test_more_reserved_than_there_is() -> None:
    with pytest.raises(Permanent, match="more is reserved"):
        plan.check_reservations(MACHINE, dataclasses.replace(POLICY, kube_reserved={"memory": "9Gi"}))


def test_enforced_leaves_out_eviction_and_knows_pids() -> None:
    policy = dataclasses.replace(POLICY, kube_reserved={"memory": "1Gi", "pid": "768"})
    found = plan.enforced(MACHINE, policy)
    assert (found["memory"], found["pid"]) == (Decimal(7 * GIB), Decimal(32000))
    assert plan.enforced(MACHINE, dataclasses.replace(policy, enforce_pods=False))["memory"] == 8 * GIB
