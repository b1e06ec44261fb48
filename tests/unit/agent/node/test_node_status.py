"""The Node's status and the patches that write it: the cases of upstream's setters_test."""

from __future__ import annotations

import dataclasses

import pytest

from agent.common.model.pods import ImageFacts
from agent.node.model import NodePlace
from agent.node.plan import status as plan
from agent.plugins.model import NodeExtras
from nodelib.json_values import Json
from tests.unit.agent.node.node_status import GIB, MACHINE, NOW, POLICY, inputs, status


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
        "runningInUserNamespace": False,
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


@pytest.mark.parametrize("inside", [True, False])
def test_the_node_says_whether_it_runs_in_a_user_namespace(inside: bool) -> None:
    there = inputs(machine=dataclasses.replace(MACHINE, user_namespace=inside))
    assert status(there)["nodeInfo"]["runningInUserNamespace"] is inside
    silent = dataclasses.replace(POLICY, names_user_namespace=False)
    assert "runningInUserNamespace" not in status(there, policy=silent)["nodeInfo"]


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
    all_named = status(inputs(images=images[:2]), policy=dataclasses.replace(POLICY, max_images=1))["images"]
    assert [image["sizeBytes"] for image in all_named] == [9]


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


@pytest.mark.parametrize(
    ("spec", "expect"),
    [
        ({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}, ("10.1.0.0/24", "fd00::/64")),
        ({"podCIDR": "10.1.0.0/24"}, ("10.1.0.0/24",)),
        ({}, ()),
    ],
)
def test_node_place(spec: Json, expect: tuple[str, ...]) -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": spec,
        "status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "1.2.3.4"}]},
    }
    assert plan.node_place(node) == NodePlace("n", ("1.2.3.4",), expect)
