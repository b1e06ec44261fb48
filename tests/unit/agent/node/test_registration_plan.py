"""The Node as it is registered: the cases of upstream's kubelet_node_status_test."""

from __future__ import annotations

import pytest

from agent.node.model import NodePolicy
from agent.node.plan import registration as plan
from nodelib.json_values import Json
from nodelib.kube.times import format_micro
from tests.unit.agent.node.node_status import MACHINE, NOW


def test_registration() -> None:
    policy = NodePolicy(
        name="n1", labels={"a": "b"}, taints=({"key": "t", "effect": "NoSchedule"},), provider_id="p://1"
    )
    found = plan.initial_node(policy, "amd64", "n1")
    assert found["metadata"]["labels"] == {
        "kubernetes.io/hostname": "n1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "a": "b",
    }
    assert found["spec"] == {"taints": [{"key": "t", "effect": "NoSchedule"}], "providerID": "p://1"}
    assert found["metadata"]["annotations"] == {plan.ATTACH_ANNOTATION: "true"}


def test_an_existing_node_gets_back_only_the_default_labels() -> None:
    wanted = plan.initial_node(NodePolicy(name="n1", labels={"a": "b"}), "amd64", "n1")
    there = {"metadata": {"labels": {"kubernetes.io/hostname": "old", "mine": "x"}, "annotations": {}}}
    patch = plan.metadata_patch(wanted, there)["metadata"]
    assert patch["labels"]["kubernetes.io/hostname"] == "n1" and "a" not in patch["labels"]
    assert patch["annotations"] == {plan.ATTACH_ANNOTATION: "true"}
    assert plan.metadata_patch(wanted, wanted) == {}


def test_a_node_that_attaches_its_volumes_itself_does_not_ask_the_controller() -> None:
    node = plan.initial_node(NodePolicy(name="n1", labels={}, controller_attach_detach=False), "amd64", "n1")
    assert plan.ATTACH_ANNOTATION not in node["metadata"].get("annotations", {})


def test_the_labels_of_the_platform_are_kept_true() -> None:
    node = plan.initial_node(NodePolicy(name="n1", labels={}), "amd64", "n1")
    assert plan.platform_patch(node, "amd64") == {}
    node["metadata"]["labels"] |= {"kubernetes.io/os": "other", "kubernetes.io/hostname": "other"}
    assert plan.platform_patch(node, "amd64") == {"metadata": {"labels": {"kubernetes.io/os": "linux"}}}
    assert set(plan.platform_patch({"metadata": {}}, "arm64")["metadata"]["labels"].values()) == {"linux", "arm64"}


def lease(age: float) -> Json:
    return {"spec": {"renewTime": format_micro(NOW - age), "leaseDurationSeconds": 40}}


@pytest.mark.parametrize(
    ("info", "held", "foreign"),
    [
        pytest.param({"machineID": "m", "systemUUID": "u"}, lease(1), False, id="ourselves"),
        pytest.param({"machineID": "x", "systemUUID": "y"}, lease(1), True, id="another, alive"),
        pytest.param({"machineID": "x", "systemUUID": "y"}, lease(60), False, id="another, silent"),
        pytest.param({"machineID": "x", "systemUUID": "y"}, None, False, id="another, never seen alive"),
        pytest.param({"machineID": "", "systemUUID": ""}, lease(1), False, id="made by hand"),
    ],
)
def test_foreign_owner(info: Json, held: Json | None, foreign: bool) -> None:
    assert bool(plan.foreign_owner({"status": {"nodeInfo": info}}, held, MACHINE, NOW)) is foreign
