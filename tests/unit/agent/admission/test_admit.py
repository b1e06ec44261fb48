"""Which pods a node rejects, with the reasons that people and controllers know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Pod
from nodelib.json_values import Json
from tests.builders.pods import container, pod

NODE = NodeView(
    name="n1",
    labels={"disk": "ssd"},
    allocatable={"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/gpu": "1"},
    kernel=(6, 1),
)
_NO_EXECUTE = {"key": "broken", "value": "yes", "effect": "NoExecute"}


def asks(uid: str = "u2", priority: int | None = None, **requests: str) -> Pod:
    return asks_for({name.replace("_", "-"): text for name, text in requests.items()}, uid, priority)


def asks_for(requests: Json, uid: str = "u2", priority: int | None = None) -> Pod:
    spec: Json = {} if priority is None else {"priority": priority}
    return pod(container("main", resources={"requests": requests}), meta={"name": uid, "uid": uid}, **spec)


def with_port(uid: str, port: int, ip: str = "", protocol: str = "TCP") -> Pod:
    ports = [{"containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol}]
    return pod(container("main", ports=ports), meta={"name": uid, "uid": uid})


def reason(subject: Pod, *others: Pod, **node: Any) -> str:
    """ "" when the node takes it."""
    found = refusal(subject, others, replace(NODE, **node))
    return found.reason if found else ""


def test_an_ordinary_pod_is_taken() -> None:
    assert reason(asks(cpu="1", memory="1Gi"), asks("a"), asks("b")) == ""


@pytest.mark.parametrize(
    ("spec", "node", "expected"),
    [
        pytest.param({}, {"shutting_down": True}, "NodeShutdown", id="the machine is shutting down"),
        pytest.param({"os": {"name": "windows"}}, {}, "PodOSNotSupported", id="another operating system"),
        pytest.param({"os": {"name": "linux"}}, {}, "", id="this operating system"),
        pytest.param(
            {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
            {"supplemental_groups_policy": False},
            "SupplementalGroupsPolicyNotSupported",
            id="a runtime that knows no strict groups",
        ),
        pytest.param(
            {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
            {"apparmor": False},
            "AppArmor",
            id="no AppArmor",
        ),
        pytest.param(
            {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {"apparmor": False}, "", id="unconfined"
        ),
        pytest.param(
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
            {},
            "SysctlForbidden",
            id="a sysctl that is not allowed",
        ),
        pytest.param(
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
            {"unsafe_sysctls": ("kernel.msg*",)},
            "",
            id="a sysctl that is allowed",
        ),
        pytest.param({"nodeSelector": {"disk": "hdd"}}, {}, "NodeAffinity", id="node selector"),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {}, "", id="node selector that fits"),
        pytest.param({"nodeName": "n2"}, {}, "NodeName", id="another node's name"),
        pytest.param({}, {"taints": (_NO_EXECUTE,)}, "TaintToleration", id="a taint that it does not tolerate"),
        pytest.param({}, {"taints": ({**_NO_EXECUTE, "effect": "NoSchedule"},)}, "", id="a taint for the scheduler"),
        pytest.param(
            {"tolerations": [{"key": "broken", "operator": "Exists"}]}, {"taints": (_NO_EXECUTE,)}, "", id="tolerated"
        ),
        pytest.param(
            {"tolerations": [{"key": "broken", "value": "no"}]},
            {"taints": (_NO_EXECUTE,)},
            "TaintToleration",
            id="another value is tolerated",
        ),
    ],
)
def test_specs(spec: Json, node: Json, expected: str) -> None:
    assert reason(pod(container("main"), **spec), **node) == expected


def test_a_label_of_another_operating_system() -> None:
    subject = pod(container("main"), meta={"labels": {"kubernetes.io/os": "windows"}})
    assert reason(subject) == "PodOSSelectorNodeLabelDoesNotMatch"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(asks(cpu="1500m"), "OutOfcpu", id="more CPU than is left"),
        pytest.param(asks(cpu="1"), "", id="as much CPU as is left"),
        pytest.param(asks(memory="2Gi"), "OutOfmemory", id="memory"),
        pytest.param(asks(ephemeral_storage="1Gi"), "OutOfephemeral-storage", id="what the node has none of"),
        pytest.param(asks_for({"example.com/gpu": "2"}), "OutOfexample.com/gpu", id="devices"),
        pytest.param(asks_for({"example.com/fpga": "1"}), "", id="devices that nobody here reports"),
    ],
)
def test_resources(subject: Pod, expected: str) -> None:
    assert reason(subject, asks("a", cpu="1", memory="512Mi")) == expected


def test_a_node_takes_as_many_pods_as_it_says() -> None:
    assert reason(asks(), asks("a"), asks("b")) == ""
    assert reason(asks(), asks("a"), asks("b"), asks("c")) == "OutOfpods"


@pytest.mark.parametrize(
    ("port", "ip", "protocol", "expected"),
    [
        pytest.param(8080, "", "TCP", "NodePorts", id="the same"),
        pytest.param(8080, "10.0.0.1", "TCP", "NodePorts", id="one address of all"),
        pytest.param(8080, "", "UDP", "", id="another protocol"),
        pytest.param(8081, "", "TCP", "", id="another port"),
    ],
)
def test_host_ports(port: int, ip: str, protocol: str, expected: str) -> None:
    assert reason(with_port("u2", port, ip, protocol), with_port("a", 8080)) == expected


def test_host_ports_of_different_addresses() -> None:
    assert reason(with_port("u2", 8080, "10.0.0.1"), with_port("a", 8080, "10.0.0.2")) == ""


@pytest.mark.parametrize(
    ("subject", "pressures", "expected"),
    [
        pytest.param(asks(), ("MemoryPressure",), "Evicted", id="nothing is asked for"),
        pytest.param(asks(memory="1Mi"), ("MemoryPressure",), "", id="memory is asked for"),
        pytest.param(asks(memory="1Mi"), ("DiskPressure",), "Evicted", id="but the disk is full"),
        pytest.param(asks(priority=2_000_000_000), ("DiskPressure",), "", id="critical pods always may"),
    ],
)
def test_pressure(subject: Pod, pressures: tuple[str, ...], expected: str) -> None:
    assert reason(subject, pressures=pressures) == expected


def test_who_can_preempt_asks_without_resources() -> None:
    assert refusal(asks(cpu="9"), (), NODE, resources=False) is None
