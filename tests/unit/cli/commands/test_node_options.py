"""Options that concern single nodes: sizes, and what a shell on a node finds set."""

from __future__ import annotations

import pytest

from cli.commands.node import new_member
from cli.commands.shell import environment
from cli.commands.up import memory_size
from controlplane.cluster.model import Cluster
from nodelib.errors import Invalid, WrongUsage


@pytest.mark.parametrize(("text", "size"), [("4Gi", 4 << 30), ("512Mi", 512 << 20), ("2G", 2 * 10**9)])
def test_sizes(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "100Mi", "-4Gi", "4 Gi"])
def test_no_size_for_a_node(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        memory_size(text)
    assert "--memory" in str(refused.value) and "Give a" in str(refused.value)


@pytest.mark.parametrize(
    ("labels", "taints", "said"),
    [
        ("gpu", "", "there is no = in it"),
        ("", "gpu=yes", "the taint does not say its effect: NoSchedule, PreferNoSchedule or NoExecute"),
    ],
)
def test_labels_and_taints_that_are_not_whole(labels: str, taints: str, said: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        new_member(Cluster("x", "10.89.1.0/24"), "gpu1", labels=labels, taints=taints)
    assert said in str(refused.value) and "Write it as " in str(refused.value)


def test_a_shell_knows_the_runtime_and_the_cluster() -> None:
    found = environment(Cluster("x", "10.89.1.0/24", tools={"ctr": "/c/ctr", "kubectl": "/k/kubectl"}), "xterm")
    assert found["PATH"].startswith("/c:/k:/usr/local/sbin:")
    assert found["CONTAINER_RUNTIME_ENDPOINT"] == "unix:///run/containerd/containerd.sock"
    assert found["CONTAINERD_NAMESPACE"] == "k8s.io" and found["KUBECONFIG"] == "/etc/kubernetes/kubelet.conf"
