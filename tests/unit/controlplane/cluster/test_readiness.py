"""What nodes and pods wait for, and the options that `status` shows."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.model import Options
from controlplane.cluster.plan.readiness import (
    closed_nodes,
    node_state,
    pod_facts,
    pods_wait_for,
    runtime_problem,
    serving_waits_for,
    settings,
    skews,
    start_waits_for,
    unexpected_conditions,
)
from controlplane.config.model import Taint
from tests.builders.pods import container_status, pod_json
from tests.builders.services import node

READY = {"type": "Ready", "status": "True"}
IN_D = {"namespace": "d"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(node(conditions=[READY]), "", id="ready"),
        pytest.param(None, "not registered", id="unknown"),
        pytest.param(
            node(conditions=[{"type": "Ready", "status": "False", "message": "no network"}]),
            "no network",
            id="not ready",
        ),
        pytest.param(node(), "no condition", id="no status"),
        pytest.param(node(conditions=[READY], cidr=""), "podCIDR", id="no podCIDR"),
        pytest.param(
            node(conditions=[READY], taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
            "tainted",
            id="tainted",
        ),
        pytest.param(
            node(conditions=[READY], taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            "until it is uncordoned",
            id="cordoned",
        ),
        pytest.param(
            node(conditions=[READY], taints=[{"key": "x", "effect": "PreferNoSchedule"}]), "", id="soft taint"
        ),
    ],
)
def test_node_state(given: Any, words: str) -> None:
    said = node_state(given).waits_for
    assert words in said if words else said == ""


def tainted(*keys: str, **more: Any) -> Any:
    return node(conditions=[READY], taints=[{"key": key, "effect": "NoSchedule"} for key in keys], **more)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(None, "not registered", id="unknown"),
        pytest.param(node(conditions=[READY], cidr=""), "podCIDR", id="no podCIDR"),
        pytest.param(tainted("node.kubernetes.io/network-unavailable"), "tainted", id="the cluster's own taint"),
        pytest.param(
            tainted("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"), "not-ready", id="cordoned, too"
        ),
        pytest.param(tainted("node.cloudprovider.kubernetes.io/uninitialized"), "uninitialized", id="cloud provider"),
        pytest.param(tainted("node.kubernetes.io/unschedulable"), "", id="cordoned"),
        pytest.param(tainted("dedicated"), "", id="a person's taint"),
        pytest.param(tainted("node.kubernetes.io/unschedulable", cidr=""), "podCIDR", id="cordoned, but no podCIDR"),
    ],
)
def test_nobody_waits_for_what_only_a_person_takes_away(given: Any, words: str) -> None:
    assert words in start_waits_for(given) if words else start_waits_for(given) == ""


def test_nodes_that_a_person_closed_are_named() -> None:
    gpu = Taint("gpu", "NoSchedule")
    nodes = {"a": tainted("node.kubernetes.io/unschedulable"), "b": tainted("gpu"), "c": tainted("x"), "d": tainted()}
    assert closed_nodes(nodes, {"a": (), "b": (gpu,), "c": (), "d": ()}) == "a cordoned, c tainted x"


@pytest.mark.parametrize(
    ("heartbeat", "boot", "words"),
    [
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:09Z", ""),
        ("2026-01-01T00:00:09Z", "2026-01-01T00:00:09Z", ""),
        ("2026-01-01T00:00:08Z", "2026-01-01T00:00:09Z", "nothing was heard"),
        ("2026-01-01T00:00:08Z", "", ""),
    ],
)
def test_a_node_that_was_ready_before_it_was_started_is_not(heartbeat: str, boot: str, words: str) -> None:
    given = node(conditions=[{**READY, "lastHeartbeatTime": heartbeat}])
    said = node_state(given, boot).waits_for
    assert words in said if words else said == ""


STARTS = 'time="t" level=info msg="starting containerd" revision= version=v2.4.2\n'
FAILS = (
    'time="t" level=warning msg="failed to load plugin" error="failed to create CRI service: failed to create fsnotify '
    "watcher: couldn't initialize inotify: too many open files\" id=io.containerd.grpc.v1.cri type=x\n"
)
OTHER = FAILS.replace("io.containerd.grpc.v1.cri", "io.containerd.grpc.v1.criminal")
SERVES = "time=t level=info msg=serving... address=/run/containerd/containerd.sock\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        pytest.param("", "", id="no log"),
        pytest.param(STARTS + SERVES, "", id="well"),
        pytest.param(STARTS + FAILS + SERVES, "without its CRI plugin (failed to create CRI service", id="ill"),
        pytest.param(STARTS + FAILS + SERVES, "max_user_instances", id="why"),
        pytest.param(STARTS + FAILS + SERVES + STARTS + SERVES, "", id="well since the last start"),
        pytest.param(STARTS + OTHER + SERVES, "", id="another plugin"),
        pytest.param(STARTS + FAILS.replace("inotify", "x\x1b"), "x\\x1b", id="hostile"),
    ],
)
def test_a_containerd_that_serves_no_pods(log: str, words: str) -> None:
    assert words in runtime_problem(log) if words else runtime_problem(log) == ""


def test_unexpected_conditions_beside_ready() -> None:
    assert (
        unexpected_conditions(None)
        == ""
        == unexpected_conditions(node(conditions=[READY, {"type": "MemoryPressure", "status": "False"}]))
    )
    odd = node(
        conditions=[READY, {"type": "DiskPressure", "status": "True"}, {"type": "PIDPressure", "status": "Unknown"}]
    )
    assert unexpected_conditions(odd) == "DiskPressure, PIDPressure"
    assert unexpected_conditions(node(conditions=[{"type": "ServingCertificate", "status": "False"}])) == "", (
        "reported separately"
    )


def test_what_a_cluster_was_raised_with() -> None:
    assert settings(Options(network_policy=False, load_balancer=False)) == {
        "proxy mode": "iptables",
        "IP family": "ipv4",
        "uplink": "yes",
        "links": "one bridge",
        "network policies": "not enforced",
    }
    assert settings(Options())["network policies"] == "enforced"
    assert settings(Options(agent="upstream"))["network policies"] == "not enforced"
    assert "network policies" not in settings(Options(kubeadm=True, network="kindnet")), "it has its own"
    more = settings(Options(proxy="upstream", kubeadm=True, uplink=False, routed=True, addons="metrics"))
    assert (more["proxy"], more["by"], more["uplink"], more["links"]) == ("upstream", "kubeadm", "no", "routed")
    assert more["addons"] == "metrics" and "agent" not in more


WAITING = {
    "phase": "Pending",
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [
        container_status("web", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, restartCount=2)
    ],
}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}],
}
FAILED = {"containerStatuses": [container_status("web", {"terminated": {"reason": "Error", "exitCode": 3}})]}
STARTED = {"running": {"startedAt": "2026-11-29T10:00:00Z"}}
BEHIND = [container_status("web", {"waiting": {"reason": "PodInitializing"}})]
INIT = {"initContainerStatuses": [container_status("side", STARTED, started=False)], "containerStatuses": BEHIND}
PULLING = [container_status("side", {"waiting": {"reason": "ErrImagePull"}})]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param({"conditions": [READY]}, "", id="ready"),
        pytest.param(FAILED, "web Error (exit code 3)", id="failed"),
        pytest.param(INIT, "side runs, and the others wait for it", id="init container"),
        pytest.param({**INIT, "initContainerStatuses": PULLING}, "side ErrImagePull", id="image of an init container"),
        pytest.param({"containerStatuses": BEHIND}, "web PodInitializing", id="nothing else is known"),
        pytest.param(WAITING, "web ErrImagePull: no such image", id="image"),
        pytest.param(UNSCHEDULABLE, "Unschedulable: 0/2 nodes", id="unschedulable"),
        pytest.param({}, "no status yet", id="new"),
    ],
)
def test_why_a_pod_is_not_ready(status: dict[str, Any], reason: str) -> None:
    assert pod_facts(pod_json("p", meta=IN_D, status=status)).reason == reason


def test_pods_wait_for_names_the_first_that_waits() -> None:
    pods = [
        pod_facts(pod_json("a", meta=IN_D, status={"conditions": [READY]})),
        pod_facts(pod_json("b", meta=IN_D, status=WAITING)),
    ]
    assert pods_wait_for(pods, 2) == "1 of 2 pods ready (b: web ErrImagePull: no such image)"
    assert pods_wait_for(pods, 1) == ""


@pytest.mark.parametrize(
    ("started", "ready"),
    [
        pytest.param("2026-01-01T10:00:00Z", False, id="before its node"),
        pytest.param("2026-01-01T10:00:05Z", True, id="with its node"),
        pytest.param("2026-01-01T10:00:09Z", True, id="after its node"),
    ],
)
def test_a_pod_older_than_its_node_is_not_ready(started: str, ready: bool) -> None:
    """A node was started anew, and its agent has not yet said that the containers ended with it."""
    box = container_status(state={"running": {"startedAt": started}})
    pod = pod_json("a", meta=IN_D, status={"conditions": [READY], "containerStatuses": [box]}, nodeName="node1")
    found = pod_facts(pod, {"node1": "2026-01-01T10:00:05Z"})
    assert found.ready is ready and pod_facts(pod, {}).ready is True
    assert ready or pods_wait_for([found], 1) == "0 of 1 pods ready (a: its node was started after it)"


def test_a_pod_that_is_going_does_not_count() -> None:
    gone = {**IN_D, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    going = pod_facts(pod_json("a", meta=gone, status={"conditions": [READY]}))
    assert pods_wait_for([going], 1) == "0 of 1 pods ready"


def test_a_serving_certificate_that_waits_is_reported() -> None:
    waits = {"type": "ServingCertificate", "status": "False", "message": "csr-1 waits for approval"}
    assert serving_waits_for({"status": {"conditions": [waits]}}) == "csr-1 waits for approval"
    assert serving_waits_for({"status": {"conditions": [{**waits, "status": "True"}]}}) == ""
    assert serving_waits_for(None) == ""


def test_kubelets_that_are_newer_than_the_api_server() -> None:
    assert skews(("v1.37.1", "v1.37.1", "v1.36.0", ""), "v1.37.1") == () == skews(("v1.37.1",), "")
    (words,) = skews(("v1.37.1", "v1.37.1"), "v1.36.3")
    assert words.startswith("v1.37.1 is newer than the API server, v1.36.3")
    assert settings(Options(kubernetes="1.36"))["control plane"] == "1.36"
