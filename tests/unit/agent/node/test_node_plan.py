"""The Node object: the cases of upstream's setters_test and kubelet_node_status_test."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from agent.common.model.pods import ImageFacts
from agent.node.model import MachineFacts, NodeInputs, NodePlace
from agent.node.plan import node as plan
from agent.node.plan.node import NodePolicy
from agent.plugins.model import NodeExtras
from agent.runtime.model import RuntimeFacts, RuntimeHandler
from agent.runtime.plan import runtime_facts, runtime_silent
from nodelib.errors import Permanent
from nodelib.json_values import Json
from nodelib.kube.times import format_micro

GIB = 1 << 30
NOW = 1_767_225_600.0
STAMP = "2026-01-01T00:00:00Z"
MACHINE = MachineFacts("m", "u", "b", "6.18", "Debian", "amd64", cpus=4, memory=8 * GIB, storage=100 * GIB, pids=32768)
RUNTIME = RuntimeFacts("containerd", "2.4.2", (RuntimeHandler("runc", True, True),), True, ())
INPUTS = NodeInputs(MACHINE, RUNTIME, (("InternalIP", "10.0.0.1"), ("Hostname", "n1")))
POLICY = NodePolicy(name="n1", labels={}, eviction_hard={"memory.available": "100Mi", "nodefs.available": "10%"})


def status(inputs: NodeInputs = INPUTS, old: Json | None = None, policy: NodePolicy = POLICY, now: float = NOW) -> Json:
    return plan.node_status(old or {}, inputs, policy, now)[0]


def condition(found: Json, kind: str) -> Json:
    return next(entry for entry in found["conditions"] if entry["type"] == kind)


def inputs(**changes: Any) -> NodeInputs:
    return dataclasses.replace(INPUTS, **changes)


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


def test_devices_of_a_plugin_that_has_gone_for_good_are_none_and_stay_named() -> None:
    old = {"capacity": {"acme.com/gpu": "2"}, "allocatable": {"acme.com/gpu": "0"}}
    found = status(inputs(extras=NodeExtras(removed=("acme.com/gpu",))), old)
    assert found["capacity"]["acme.com/gpu"] == found["allocatable"]["acme.com/gpu"] == "0"


def test_extended_resources_of_others_stay() -> None:
    old = {
        "capacity": {"example.com/dongle": "4"},
        "allocatable": {"example.com/dongle": "3"},
        "volumesAttached": [{"name": "x"}],
    }
    found = status(old=old)
    assert (found["capacity"]["example.com/dongle"], found["allocatable"]["example.com/dongle"]) == ("4", "3")
    assert found["volumesAttached"] == [{"name": "x"}]


def test_node_info() -> None:
    assert status()["nodeInfo"] == {
        "machineID": "m",
        "systemUUID": "u",
        "bootID": "b",
        "kernelVersion": "6.18",
        "osImage": "Debian",
        "containerRuntimeVersion": "containerd://2.4.2",
        "kubeletVersion": "v1.37.1",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def test_handlers_features_endpoints() -> None:
    found = status()
    assert found["runtimeHandlers"] == [
        {"name": "runc", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}
    ]
    assert found["features"] == {"supplementalGroupsPolicy": True}
    assert found["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_images_largest_first_names_cut_nameless_left_out() -> None:
    images = (
        ImageFacts("a", repo_tags=("small:1",), size=1),
        ImageFacts(
            "b", repo_tags=tuple(f"big:{number}" for number in range(9)), repo_digests=("big@sha256:x",), size=9
        ),
        ImageFacts("c", size=99),
    )
    found = status(inputs(images=images))["images"]
    assert [image["sizeBytes"] for image in found] == [9, 1]
    assert found[0]["names"] == ["big@sha256:x", "big:0", "big:1", "big:2", "big:3"]
    assert len(status(inputs(images=images), policy=dataclasses.replace(POLICY, max_images=1))["images"]) <= 1


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


def test_a_heartbeat_alone_is_no_change() -> None:
    first = status()
    assert not plan.changed(first, status(old=first, now=NOW + 10))
    assert plan.changed(first, status(inputs(problems=("x",)), old=first, now=NOW + 10))
    assert plan.changed({}, first)


def test_the_patch_has_what_differs_and_conditions_whole() -> None:
    first = status()
    second = status(inputs(addresses=(("InternalIP", "10.0.0.2"),)), old=first)
    patch = plan.status_patch(first, second)["status"]
    assert set(patch) == {"addresses", "conditions"}
    assert patch["addresses"] == [{"type": "InternalIP", "address": "10.0.0.2"}, {"$patch": "replace"}]


def test_the_patch_removes_what_is_gone() -> None:
    first = status(inputs(machine=dataclasses.replace(MACHINE, hugepages={2 << 20: GIB}), declared_features=("A",)))
    patch = plan.status_patch(first, status(old=first))["status"]
    assert patch["capacity"]["hugepages-2Mi"] is None and patch["declaredFeatures"] is None


NOT_READY = {
    "type": "NetworkReady",
    "status": False,
    "reason": "NetworkPluginNotReady",
    "message": "Network plugin returns error: cni plugin not initialized",
}


def test_runtime_facts_say_what_the_runtime_says() -> None:
    answer = {
        "status": {"conditions": [{"type": "RuntimeReady", "status": True}, NOT_READY]},
        "runtime_handlers": [{"name": "runc", "features": {"user_namespaces": True}}, {"name": "", "features": {}}],
        "features": {"supplemental_groups_policy": True},
    }
    found = runtime_facts(answer, {"runtime_name": "containerd", "runtime_version": "v2.4.2"})
    assert found.problems == (
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
        "message:Network plugin returns error: cni plugin not initialized",
    )
    assert (found.name, found.version, found.supplemental_groups_policy) == ("containerd", "2.4.2", True)
    assert [handler.name for handler in found.handlers] == ["", "runc"]


@pytest.mark.parametrize("answer", [{}, {"status": {}}, {"status": {"conditions": []}}])
def test_a_runtime_without_conditions_is_not_ready(answer: Json) -> None:
    assert len(runtime_facts(answer, {}).problems) == 2


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


def test_more_reserved_than_there_is() -> None:
    with pytest.raises(Permanent, match="more is reserved"):
        plan.check_reservations(MACHINE, dataclasses.replace(POLICY, kube_reserved={"memory": "9Gi"}))


def test_enforced_leaves_out_eviction_and_knows_pids() -> None:
    policy = dataclasses.replace(POLICY, kube_reserved={"memory": "1Gi", "pid": "768"})
    found = plan.enforced(MACHINE, policy)
    assert (found["memory"], found["pid"]) == (Decimal(7 * GIB), Decimal(32000))
    assert plan.enforced(MACHINE, dataclasses.replace(policy, enforce_pods=False))["memory"] == 8 * GIB


@pytest.mark.parametrize(
    ("spec", "expect"),
    [
        ({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}, ("10.1.0.0/24", "fd00::/64")),
        ({"podCIDR": "10.1.0.0/24"}, ("10.1.0.0/24",)),
        ({}, ()),
    ],
)
def test_node_facts(spec: Json, expect: tuple[str, ...]) -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": spec,
        "status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "1.2.3.4"}]},
    }
    assert plan.node_facts(node) == NodePlace("n", ("1.2.3.4",), expect)


def test_a_runtime_that_is_silent_is_down_after_half_a_minute() -> None:
    assert runtime_silent(RUNTIME, 29.9, "no answer") is RUNTIME
    down = runtime_silent(RUNTIME, 30.0, "no answer")
    assert (down.name, down.problems) == ("containerd", ("container runtime is down: no answer",))
    assert not runtime_silent(RuntimeFacts(), None, "no answer").problems[0].startswith("container runtime is down")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, {}, ()),
        ({}, {"unschedulable": True}, ("NodeNotSchedulable",)),
        ({"unschedulable": True}, {}, ("NodeSchedulable",)),
    ],
)
def test_a_cordon_is_told(before: Json | None, now: Json, expected: tuple[str, ...]) -> None:
    old = None if before is None else {"metadata": {"name": "n1"}, "spec": before}
    told = plan.schedulable_events(old, {"metadata": {"name": "n1"}, "spec": now})
    assert tuple(one.reason for one in told) == expected
