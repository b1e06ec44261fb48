"""Files of other tools that are given to `up --config`: the same is printed in our format."""

from __future__ import annotations

import pytest
import yaml

from controlplane.config.plan import read
from controlplane.config.plan.other_formats import in_ours, tool_of
from nodelib.errors import Invalid
from nodelib.json_values import Json

KIND = "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n"
OURS = {"apiVersion": "nodewright.io/v1alpha1", "kind": "Cluster"}

# name: (file, the same in ours, part of what has no counterpart)
CASES: dict[str, tuple[str, Json, str]] = {
    "the smallest": (KIND, {"nodes": 1}, ""),
    "nodes by role, ports": (
        KIND
        + "name: k\nnodes:\n- role: worker\n- role: control-plane\n  image: kindest/node:v1.30\n  extraPortMappings:\n"
        "  - {containerPort: 30080, hostPort: 8080}\n  - {containerPort: 80, hostPort: 80}\n",
        {"name": "k", "nodes": 2, "ports": [{"hostPort": 8080, "nodePort": 30080}]},
        "nodes[].image, the mapping of port 80",
    ),
    "labels and mounts": (
        KIND + "nodes:\n- role: control-plane\n- role: worker\n  labels: {tier: a}\n  extraMounts:\n"
        "  - {hostPath: /srv, containerPath: /data, readOnly: true}\n",
        {
            "nodes": [
                {"name": "node1"},
                {
                    "name": "node2",
                    "labels": {"tier": "a"},
                    "mounts": [{"hostPath": "/srv", "nodePath": "/data", "readOnly": True}],
                },
            ]
        },
        "",
    ),
    "networking and gates": (
        KIND
        + "networking: {ipFamily: dual, kubeProxyMode: nftables, disableDefaultCNI: true}\nfeatureGates: {X: true}\n",
        {"nodes": 1, "networking": {"ipFamily": "dual", "proxyMode": "nftables"}, "featureGates": {"X": True}},
        "networking.disableDefaultCNI",
    ),
    "several control planes": (
        KIND + "nodes: [{role: control-plane}, {role: control-plane}, {role: control-plane}]\n",
        {"nodes": 3, "kubeadm": {"controlPlanes": 3}},
        "",
    ),
    "k3d": (
        "apiVersion: k3d.io/v1alpha5\nkind: Simple\nmetadata: {name: lab}\nservers: 1\nagents: 2\nports: []\n",
        {"name": "lab", "nodes": 3},
        "ports",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_in_our_format(name: str) -> None:
    text, wanted, left = CASES[name]
    values = yaml.safe_load(text)
    shown = in_ours(tool_of(values), values)
    assert yaml.safe_load(shown) == {**OURS, **wanted}
    assert left in shown.partition("# without a counterpart: ")[2]
    read.wanted(read.parse(shown, "file").values)


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_the_same_in_ours(name: str) -> None:
    text, _, _ = CASES[name]
    with pytest.raises(Invalid, match="this is a file for k") as refused:
        read.parse(text, "kind.yaml")
    assert "apiVersion: nodewright.io/v1alpha1" in refused.value.action


@pytest.mark.parametrize(
    "more", ["nodes: 7\n", "nodes: [3, {role: []}]\n", "networking: {podSubnet: [x]}\n", "name: {}\n"]
)
def test_what_is_wrong_in_it_breaks_nothing(more: str) -> None:
    with pytest.raises(Invalid, match="this is a file for kind"):
        read.parse(KIND + more, "kind.yaml")


def test_ours_and_unknown_ones_are_no_file_of_another_tool() -> None:
    assert [tool_of(one) for one in (OURS, {}, {"apiVersion": ["kind.x-k8s.io/"]})] == ["", "", ""]
