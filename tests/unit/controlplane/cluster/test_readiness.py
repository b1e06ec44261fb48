"""What nodes and pods wait for, and the options that `status` shows."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.model import Options
from controlplane.cluster.plan.readiness import (
    node_waits_for,
    pod_facts,
    pods_wait_for,
    serving_waits_for,
    settings,
    skews,
    unexpected_conditions,
)

READY = {"type": "Ready", "status": "True"}


def node(*conditions: dict[str, str], cidr: str = "10.244.0.0/24", taints: list[dict[str, str]] | None = None) -> Any:
    return {"spec": {"podCIDR": cidr, "taints": taints}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(node(READY), "", id="ready"),
        pytest.param(None, "not registered", id="unknown"),
        pytest.param(node({"type": "Ready", "status": "False", "message": "no network"}), "no network", id="not ready"),
        pytest.param(node(), "no condition", id="no status"),
        pytest.param(node(READY, cidr=""), "podCIDR", id="no podCIDR"),
        pytest.param(
            node(READY, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
            "tainted",
            id="tainted",
        ),
        pytest.param(node(READY, taints=[{"key": "x", "effect": "PreferNoSchedule"}]), "", id="soft taint"),
    ],
)
def test_node_waits_for(given: Any, words: str) -> None:
    assert words in node_waits_for(given) if words else node_waits_for(given) == ""


def test_unexpected_conditions_beside_ready() -> None:
    assert (
        unexpected_conditions(None)
        == ""
        == unexpected_conditions(node(READY, {"type": "MemoryPressure", "status": "False"}))
    )
    odd = node(READY, {"type": "DiskPressure", "status": "True"}, {"type": "PIDPressure", "status": "Unknown"})
    assert unexpected_conditions(odd) == "DiskPressure, PIDPressure"
    assert unexpected_conditions(node({"type": "ServingCertificate", "status": "False"})) == "", "reported separately"


def test_what_a_cluster_was_raised_with() -> None:
    assert settings(Options()) == {
        "proxy mode": "iptables",
        "IP family": "ipv4",
        "uplink": "yes",
        "links": "one bridge",
    }
    more = settings(Options(proxy="upstream", kubeadm=True, uplink=False, routed=True, addons="metrics"))
    assert (more["proxy"], more["by"], more["uplink"], more["links"]) == ("upstream", "kubeadm", "no", "routed")
    assert more["addons"] == "metrics" and "agent" not in more


def pod(name: str, status: dict[str, Any], **metadata: str) -> Any:
    return {"metadata": {"name": name, "namespace": "d", **metadata}, "spec": {"nodeName": "n"}, "status": status}


WAITING = {
    "phase": "Pending",
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [
        {"name": "web", "restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    ],
}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}],
}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param({"conditions": [READY]}, "", id="ready"),
        pytest.param(WAITING, "web ErrImagePull: no such image", id="image"),
        pytest.param(UNSCHEDULABLE, "Unschedulable: 0/2 nodes", id="unschedulable"),
        pytest.param({}, "no status yet", id="new"),
    ],
)
def test_why_a_pod_is_not_ready(status: dict[str, Any], reason: str) -> None:
    assert pod_facts(pod("p", status)).reason == reason


def test_pods_wait_for_names_the_first_that_waits() -> None:
    pods = [pod_facts(pod("a", {"conditions": [READY]})), pod_facts(pod("b", WAITING))]
    assert pods_wait_for(pods, 2) == "1 of 2 pods ready (b: web ErrImagePull: no such image)"
    assert pods_wait_for(pods, 1) == ""


def test_a_pod_that_is_going_does_not_count() -> None:
    going = pod_facts(pod("a", {"conditions": [READY]}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert pods_wait_for([going], 1) == "0 of 1 pods ready"


def test_a_serving_certificate_that_waits_is_told() -> None:
    waits = {"type": "ServingCertificate", "status": "False", "message": "csr-1 waits for approval"}
    assert serving_waits_for({"status": {"conditions": [waits]}}) == "csr-1 waits for approval"
    assert serving_waits_for({"status": {"conditions": [{**waits, "status": "True"}]}}) == ""
    assert serving_waits_for(None) == ""


def test_kubelets_that_are_newer_than_the_api_server() -> None:
    assert skews(("v1.37.1", "v1.37.1", "v1.36.0", ""), "v1.37.1") == () == skews(("v1.37.1",), "")
    (words,) = skews(("v1.37.1", "v1.37.1"), "v1.36.3")
    assert words.startswith("v1.37.1 is newer than the API server, v1.36.3")
    assert settings(Options(kubernetes="1.36"))["control plane"] == "1.36"
