"""The configuration that kubeadm reads, and the commands on its nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cli.commands.join import token_of
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.components import Tools
from controlplane.config.model import Member, Taint
from controlplane.kubeadm import work
from controlplane.kubeadm.plan import commands, config
from nodelib.errors import Invalid

CLUSTER = Cluster("adm", "10.89.7.0/24", Options(nodes=3, kubeadm=True))
HA = replace(CLUSTER, options=Options(nodes=4, kubeadm=True, control_planes=3))
TOOLS = Tools({"kubelet": "/b/kubelet", "kubeadm": "/b/kubeadm"}, "/p/python", "/p/project")


def documents(text: str) -> dict[str, dict[str, object]]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_init_names_the_first_node_and_the_ranges() -> None:
    found = documents(config.init_config(CLUSTER, "abcdef.0123456789abcdef", ""))
    assert set(found) == {
        "InitConfiguration",
        "ClusterConfiguration",
        "KubeletConfiguration",
        "KubeProxyConfiguration",
    }
    assert found["InitConfiguration"]["localAPIEndpoint"] == {"advertiseAddress": "10.89.7.11", "bindPort": 6443}
    assert found["ClusterConfiguration"]["networking"] == {
        "podSubnet": "10.244.0.0/16",
        "serviceSubnet": "10.96.0.0/16",
        "dnsDomain": "cluster.local",
    }
    assert "controlPlaneEndpoint" not in found["ClusterConfiguration"]
    assert "certificateKey" not in found["InitConfiguration"]


def test_several_control_planes_share_one_address() -> None:
    found = documents(config.init_config(HA, "abcdef.0123456789abcdef", "k"))
    assert found["ClusterConfiguration"]["controlPlaneEndpoint"] == "10.89.7.10:6443"
    assert found["InitConfiguration"]["certificateKey"] == "k"


@pytest.mark.parametrize(("number", "control_plane"), [(1, True), (2, True), (3, False)])
def test_a_node_joins_as_what_it_is(number: int, control_plane: bool) -> None:
    joined = documents(config.join_config(HA, HA.nodes[number], "t", "sha256:1", "k"))["JoinConfiguration"]
    assert ("controlPlane" in joined) is control_plane
    assert joined["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "10.89.7.10:6443"  # type: ignore[index]


def test_the_service_tells_the_agent_its_network() -> None:
    """And no cgroup: the root of the hierarchies that a node sees is its own cgroup."""
    text = commands.kubelet_service(CLUSTER, CLUSTER.nodes[1])
    assert "--cgroup-root" not in text and "--pod-network-cidr=10.244.0.0/16" in text
    upstream = replace(CLUSTER, options=replace(CLUSTER.options, agent="upstream"))
    assert "--pod-network" not in commands.kubelet_service(upstream, CLUSTER.nodes[1])
    assert "/b/kubelet" in commands.kubelet_command(upstream, TOOLS)


def test_kubeadm_sees_no_environment_of_ours() -> None:
    line = commands.kubeadm_line(CLUSTER, CLUSTER.nodes[0], TOOLS, "init")
    assert line[:2] == ["env", "-i"] and line[-2:] == ["/b/kubeadm", "init"]
    assert line[2].startswith(f"PATH={CLUSTER.node_dir('node1')}/commands:")


def test_a_node_joins_with_the_taints_that_it_is_to_have() -> None:
    gpu = Member("gpu", taints=(Taint("gpu", "NoSchedule", "yes"),))
    cluster = Cluster("adm", "10.89.7.0/24", Options(nodes=2, kubeadm=True, members=(Member("head"), gpu)))
    taints = [
        yaml.safe_load(config.join_config(cluster, node, "t", "h", ""))["nodeRegistration"]["taints"]
        for node in cluster.nodes
    ]
    assert taints == [[], [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]]


async def test_no_command_line_has_a_bootstrap_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine sees command lines, and with the token any node's certificate may be asked for."""
    token, seen = "abcdef.0123456789abcdef", list[str]()

    async def run_lines(argv: list[str], *, log: str, on_line: Callable[[str], None], on_text: Any) -> int:
        seen.extend(argv)
        given = next(word.partition("=")[2] for word in argv if word.startswith("--token="))
        on_line(token_of(given))
        return 1

    monkeypatch.setattr(work, "run_lines", run_lines)
    monkeypatch.setattr(work, "_inside", lambda cluster, node, line: line)
    cluster = replace(CLUSTER, root=str(tmp_path))
    step = SimpleNamespace(step=lambda title: nullcontext(lambda text: None))
    context: Any = SimpleNamespace(cluster=cluster, tools=TOOLS, progress=step)
    with pytest.raises(Exception, match=token):  # what the stand-in read from the file
        await work._nodewright_join(context, cluster.nodes[2], {"token": token}, "sha256:1")
    assert not any(token in word for word in seen)
    assert not list(tmp_path.rglob("join-token"))


def test_a_file_of_a_token_that_is_not_there_is_named() -> None:
    assert token_of("abcdef.0123456789abcdef") == "abcdef.0123456789abcdef"
    with pytest.raises(Invalid, match="No such file"):
        token_of("@/nonexistent/token")
