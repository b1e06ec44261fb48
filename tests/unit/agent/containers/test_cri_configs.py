"""PodSandboxConfig and ContainerConfig: every field, and that the runtime's own messages take them."""

from __future__ import annotations

from typing import Any

import pytest
from cri_api.v1 import api_pb2

from agent.common.model import labels
from agent.common.model.pod_settings import PodDefaults
from agent.containers.model import MountPlan
from agent.containers.plan.container import container_config, cri_mount, stop_signal, termination_path
from agent.containers.plan.dns import Dns
from agent.containers.plan.sandbox import port_mappings, sandbox_config
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import BUSYBOX, container, pod

SETTINGS = PodDefaults("n1")


def made_sandbox(**spec: Any) -> Json:
    meta = {"labels": {"app": "x"}, "annotations": {"note": "1"}}
    subject = pod(*spec.pop("containers", []), meta=meta, **spec)
    return sandbox_config(
        subject,
        SETTINGS,
        Dns(("1.1.1.1",)),
        users={},
        cgroup_parent="/kubepods/x",
        attempt=2,
        resources={"cpu_shares": 2},
        overhead={},
    )


def test_sandbox() -> None:
    found = made_sandbox()
    assert found["metadata"] == {"name": "web", "namespace": "shop", "uid": "0b5c5f5e-1", "attempt": 2}
    assert found["labels"]["app"] == "x"
    assert found["labels"]["io.kubernetes.pod.uid"] == "0b5c5f5e-1"
    assert found["annotations"] == {"note": "1", "kubernetes.io/config.source": "api"}
    assert found["log_directory"] == "/var/log/pods/shop_web_0b5c5f5e-1"
    assert found["hostname"] == "web"
    assert found["linux"]["cgroup_parent"] == "/kubepods/x"
    message = api_pb2.PodSandboxConfig(**found)
    assert message.linux.security_context.namespace_options.pid == api_pb2.CONTAINER
    assert message.dns_config.servers == ["1.1.1.1"]


def test_sandbox_of_the_host_network_has_no_name() -> None:
    assert "hostname" not in made_sandbox(hostNetwork=True)


def test_sandbox_security_and_sysctls() -> None:
    context = {
        "runAsUser": 5,
        "runAsGroup": 6,
        "fsGroup": 7,
        "supplementalGroups": [8],
        "supplementalGroupsPolicy": "Strict",
        "seLinuxOptions": {"type": "t"},
        "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
    }
    found = made_sandbox(securityContext=context, containers=[container(securityContext={"privileged": True})])
    message = api_pb2.PodSandboxConfig(**found).linux
    assert (message.security_context.run_as_user.value, message.security_context.run_as_group.value) == (5, 6)
    assert list(message.security_context.supplemental_groups) == [7, 8]
    assert message.security_context.privileged
    assert dict(message.sysctls) == {"net.ipv4.tcp_syncookies": "1"}


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        pytest.param([{"containerPort": 80}], [("TCP", 80, 0, "")], id="plain"),
        pytest.param(
            [{"containerPort": 53, "hostPort": 5353, "protocol": "UDP", "hostIP": "10.0.0.1"}],
            [("UDP", 53, 5353, "10.0.0.1")],
            id="host port",
        ),
        pytest.param(
            [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}], [("TCP", 1, 0, "")], id="same name"
        ),
        pytest.param([{"containerPort": 1}, {"containerPort": 1}], [("TCP", 1, 0, "")], id="same meaning"),
        pytest.param(
            [{"containerPort": 1, "hostIP": "::1"}, {"containerPort": 1, "hostIP": "127.0.0.1"}],
            [("TCP", 1, 0, "::1"), ("TCP", 1, 0, "127.0.0.1")],
            id="two families",
        ),
    ],
)
def test_port_mappings(ports: list[Json], expected: list[tuple[str, int, int, str]]) -> None:
    found = port_mappings(pod(container(ports=ports)))
    assert [(m["protocol"], m["container_port"], m["host_port"], m["host_ip"]) for m in found] == expected


def made_container(one: Json, env: dict[str, str] | None = None, **meta: Any) -> Json:
    return container_config(
        pod(one, meta=meta, terminationGracePeriodSeconds=30),
        one,
        attempt=3,
        image_ref="sha256:1",
        env=env or {},
        mounts=[cri_mount(MountPlan("v", "/data", "/host", read_only=True))],
        resources={"cpu_shares": 2},
        security_context={"run_as_user": {"value": 0}, "namespace_options": {}},
    )


def test_command_and_arguments_refer_to_so_much_text_together() -> None:
    """Each start of a container with 16 MiB of each, which no kernel can start, took the agent's loop 0.2 s."""
    env = {"LONG": "x" * (1 << 20)}
    made_container(container(command=["$(LONG)" * 3], args=["$(LONG)" * 3]), env)
    with pytest.raises(Invalid, match="make more than"):
        made_container(container(command=["$(LONG)" * 3], args=["$(LONG)" * 4]), env)


def test_container() -> None:
    one = container(
        command=["sh", "-c"],
        args=["echo $(WHO)"],
        workingDir="/w",
        stdin=True,
        stdinOnce=True,
        tty=True,
        ports=[{"containerPort": 80}],
        lifecycle={"preStop": {"exec": {"command": ["x"]}}, "stopSignal": "SIGRTMIN+1"},
    )
    found = made_container(one, {"WHO": "me"}, deletionGracePeriodSeconds=5)
    message = api_pb2.ContainerConfig(**found)
    assert (message.metadata.name, message.metadata.attempt) == ("main", 3)
    assert (message.image.image, message.image.user_specified_image) == ("sha256:1", BUSYBOX)
    assert (list(message.command), list(message.args)) == (["sh", "-c"], ["echo me"])
    assert (message.working_dir, message.log_path) == ("/w", "main/3.log")
    assert message.stdin and message.stdin_once and message.tty
    assert message.stop_signal == api_pb2.SIGRTMINPLUS1
    assert [(e.key, e.value) for e in message.envs] == [("WHO", "me")]
    assert [(m.container_path, m.host_path, m.readonly) for m in message.mounts] == [("/data", "/host", True)]
    notes = message.annotations
    assert notes[labels.RESTART_COUNT] == "3"
    assert notes[labels.TERMINATION_PATH] == "/dev/termination-log"
    assert notes[labels.TERMINATION_GRACE] == "30"
    assert notes[labels.DELETION_GRACE] == "5"
    assert notes[labels.PRE_STOP] == '{"exec":{"command":["x"]}}'
    assert notes[labels.PORTS] == '[{"containerPort":80}]'


def test_hash_is_upstreams() -> None:
    """The value of upstream's own test for this container: both agents must agree on what has changed."""
    assert labels.container_hash({"name": "test_container", "image": "foo/image:v1"}) == "8e45cbd0"


def test_image_mount_has_no_host_path() -> None:
    mount = cri_mount(MountPlan("v", "/img", image="registry/a:1", image_ref="sha256:1", image_sub_path="sub"))
    image = {"image": "sha256:1", "user_specified_image": "registry/a:1"}
    assert (mount["host_path"], mount["image"], mount["image_sub_path"]) == ("", image, "sub")


@pytest.mark.parametrize(("name", "expected"), [("SIGTERM", "SIGTERM"), ("SIGRTMAX-2", "SIGRTMAXMINUS2")])
def test_stop_signal(name: str, expected: str) -> None:
    assert stop_signal(name) == expected
    assert expected in api_pb2.Signal.keys()  # noqa: SIM118 (an enum wrapper is no dict)


def test_stop_signal_refuses() -> None:
    with pytest.raises(Invalid, match="is not a signal name"):
        stop_signal("TERM; rm")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "/dev/termination-log"),
        ({"terminationMessagePath": ""}, ""),
        ({"terminationMessagePath": "tmp/x"}, "/tmp/x"),
    ],
    ids=["default", "none", "relative"],
)
def test_termination_path(fields: Json, expected: str) -> None:
    assert termination_path({"name": "a", **fields}) == expected
