"""The conditions of the Node and the Events of their changes: the cases of upstream's setters_test."""

from __future__ import annotations

import dataclasses

import pytest

from agent.node.plan import status as plan
from agent.node.plan.conditions import schedulable_events
from agent.runtime.model import RuntimeFacts
from nodelib.json_values import Json
from tests.unit.agent.node.node_status import INPUTS, MACHINE, NOW, POLICY, STAMP, condition, inputs, status


@pytest.mark.parametrize(
    ("changes", "expect", "message"),
    [
        pytest.param({}, "True", "kubelet is posting ready status", id="ready"),
        pytest.param({"problems": ("PLEG is not healthy",)}, "False", "PLEG is not healthy", id="one"),
        pytest.param({"problems": ("a", "b")}, "False", "[a, b]", id="two"),
        pytest.param(
            {"runtime": RuntimeFacts()},
            "False",
            "container runtime status check may not have completed yet",
            id="unknown",
        ),
        pytest.param({"addresses": ()}, "False", "no address of this node is known; give --node-ip", id="no address"),
    ],
)
def test_ready(changes: Json, expect: str, message: str) -> None:
    found = condition(status(inputs(**changes)), "Ready")
    assert (found["status"], found["message"]) == (expect, message)
    assert found["reason"] == ("KubeletReady" if expect == "True" else "KubeletNotReady")


def test_conditions_keep_their_transition_and_ready_is_last() -> None:
    first = status()
    first["conditions"].insert(0, {"type": "Custom", "status": "True"})
    later = status(old=first, now=NOW + 60)
    assert [entry["type"] for entry in later["conditions"]] == [
        "Custom",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "Ready",
    ]
    ready = condition(later, "Ready")
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == (STAMP, "2026-01-01T00:01:00Z")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("MemoryPressure", "KubeletHasInsufficientMemory"),
        ("DiskPressure", "KubeletHasDiskPressure"),
        ("PIDPressure", "KubeletHasInsufficientPID"),
    ],
)
def test_pressure_conditions(kind: str, reason: str) -> None:
    found = condition(status(inputs(pressures=frozenset({kind}))), kind)
    assert (found["status"], found["reason"]) == ("True", reason)


def test_events_of_changes() -> None:
    first, events = plan.node_status({}, INPUTS, POLICY, NOW)
    assert [event.reason for event in events] == [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ]
    _, events = plan.node_status(first, inputs(problems=("x",)), POLICY, NOW)
    assert [(event.reason, event.message) for event in events] == [
        ("NodeNotReady", "Node n1 status is now: NodeNotReady")
    ]
    _, events = plan.node_status(first, inputs(machine=dataclasses.replace(MACHINE, boot_id="c")), POLICY, NOW)
    assert [(event.kind, event.reason) for event in events] == [("Warning", "Rebooted")]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, {}, ()),
        ({}, {"unschedulable": True}, ("NodeNotSchedulable",)),
        ({"unschedulable": True}, {}, ("NodeSchedulable",)),
    ],
)
def test_a_cordon_makes_an_event(before: Json | None, now: Json, expected: tuple[str, ...]) -> None:
    old = None if before is None else {"metadata": {"name": "n1"}, "spec": before}
    events = schedulable_events(old, {"metadata": {"name": "n1"}, "spec": now})
    assert tuple(one.reason for one in events) == expected
