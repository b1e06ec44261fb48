"""The real kubeadm with our agent as the kubelet: init, join, tokens, certificates, reset, and back again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.components import Tools
from controlplane.kubeadm.plan import commands
from controlplane.machine.edge import namespaces
from tests.cluster.command_line import PROJECT, STATE, cli, differences, traces, until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NAME = "tadm"
UP = ("up", "--name", NAME, "--kubeadm", "--no-uplink", "--no-demo", "--plain")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cli("down", "--name", NAME, "--plain")
    before = traces(NAME)
    cli(*UP, timeout=900)
    yield Cluster.from_json(json.loads((STATE / NAME / "cluster.json").read_text()), str(STATE))
    cli("down", "--name", NAME, "--plain")
    assert differences(before, traces(NAME)) == {}


def in_node(cluster: Cluster, number: int, *argv: str) -> str:
    """kubeadm (or another command of the node) in its namespaces."""
    node = cluster.nodes[number]
    tools = Tools(cluster.tools, "", str(PROJECT))
    line = commands.kubeadm_line(cluster, node, tools, *argv)
    inside = namespaces.in_node(cluster.namespaces(node.name), line)
    done = subprocess.run(inside, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kubectl(*arguments: str) -> str:
    return cli("kubectl", "--name", NAME, "--", *arguments).stdout


def ready() -> set[str]:
    rows = kubectl("get", "nodes", "--no-headers").splitlines()
    return {row.split()[0] for row in rows if row.split()[1] == "Ready"}


def test_both_nodes_are_ready_and_the_control_plane_is_static_pods(cluster: Cluster) -> None:
    assert ready() == {"node1", "node2"}
    names = kubectl("-n", "kube-system", "get", "pods", "-o", "name")
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert f"pod/{component}-node1" in names
    pem = STATE / NAME / "node2/kubelet/pki/kubelet-client-current.pem"
    assert pem.is_symlink()
    rotated = (STATE / NAME / "node1/kubernetes/kubelet.conf").read_text()
    assert "kubelet-client-current.pem" in rotated, "kubeadm found the rotated certificate and points at it"


def test_tokens_and_certificates(cluster: Cluster) -> None:
    line = in_node(cluster, 0, "token", "create", "--print-join-command", "--kubeconfig=/etc/kubernetes/admin.conf")
    assert line.startswith("kubeadm join ") and "sha256:" in line
    assert "Done renewing certificates" in in_node(cluster, 0, "certs", "renew", "all")


def test_a_node_that_was_reset_is_clean_and_can_join_again(cluster: Cluster) -> None:
    in_node(cluster, 1, "reset", "--force")
    own = STATE / NAME / "node2"
    left = [path for name in ("kubelet", "kubernetes", "etcd") for path in (own / name).rglob("*") if path.is_file()]
    assert [path for path in left if not path.name.startswith("proxy.")] == []
    kubectl("delete", "node", "node2")
    cli(*UP, timeout=300)
    until(lambda: ready() == {"node1", "node2"}, "node2 is back")
