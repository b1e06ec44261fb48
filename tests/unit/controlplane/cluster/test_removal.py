"""Which nodes may go, what is left of the cluster then, and which pods are in the way."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.drain import names, plan_drain
from controlplane.cluster.plan.removal import check_removable, without
from controlplane.config.model import Custom, Port
from nodelib.errors import NodewrightError

CLUSTER = Cluster("lab", "10.89.3.0/24", Options(nodes=3, custom=Custom(ports=(Port(80, 30080, node="node3"),))))
ADM = Cluster("adm", "10.89.3.0/24", Options(nodes=5, kubeadm=True, control_planes=3, joined=1))


@pytest.mark.parametrize(
    ("cluster", "node", "words"),
    [
        pytest.param(CLUSTER, "node2", "", id="a worker"),
        pytest.param(CLUSTER, "node1", "it holds the control plane", id="the first"),
        pytest.param(ADM, "node3", "it holds the control plane", id="one of several control planes"),
        pytest.param(CLUSTER, "node9", "no such node (there are: node1, node2, node3)", id="unknown"),
        pytest.param(CLUSTER, "node3", "a port of this machine leads to it", id="a port"),
    ],
)
def test_which_nodes_may_be_removed(cluster: Cluster, node: str, words: str) -> None:
    if not words:
        check_removable(cluster, node)
        return
    with pytest.raises(NodewrightError) as caught:
        check_removable(cluster, node)
    assert (
        words in caught.value.message and f"--name {cluster.name}" in caught.value.action
    ) or "--config" in caught.value.action


def test_the_others_keep_their_names_and_addresses() -> None:
    left = without(CLUSTER, "node2")
    assert [(one.name, one.address) for one in left.nodes] == [("node1", "10.89.3.11"), ("node3", "10.89.3.13")]
    assert left.options.nodes == 2
    assert (without(ADM, "node5").options.joined, without(ADM, "node4").options.joined) == (0, 1)


def pod(name: str, owner: str = "", phase: str = "Running", **annotations: str) -> dict[str, Any]:
    owners = [{"kind": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "x", "ownerReferences": owners, "annotations": annotations}
    return {"metadata": metadata, "status": {"phase": phase}}


def test_which_pods_leave_and_which_are_in_the_way() -> None:
    found = plan_drain(
        [
            pod("web", "ReplicaSet"),
            pod("logs", "DaemonSet"),
            pod("static", "Node", **{"kubernetes.io/config.mirror": "x"}),
            pod("alone"),
            pod("done", phase="Succeeded"),
        ]
    )
    assert (names(found.evict), names(found.alone)) == ("x/done, x/web", "x/alone")
    assert names(pod(str(number)) for number in range(7)) == "x/0, x/1, x/2, x/3, x/4 and 2 more"
