"""`nodewright join --network-policy`: a node that joined enforces policies; `leave` takes their rules away again.

Takes minutes: run by hand (`pytest tests/cluster/test_join_policy.py -m soak`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster
from nodelib.json_values import Json
from tests.cluster.command_line import STATE, cli, differences, traces, until
from tests.cluster.joined_node import in_node2

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

NAME = "tjpol"
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
CLOSED: Json = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed"},
    "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """node1 by kubeadm, node2 by `nodewright join` with our pod network and proxy, and without policies so far."""
    cli("down", "--name", NAME, "--plain")
    before = traces(NAME)
    cli("up", "--name", NAME, "--kubeadm", "--joined", "1", "--no-demo", "--no-uplink", "--plain", timeout=900)
    yield Cluster.from_json(json.loads((STATE / NAME / "cluster.json").read_text()), str(STATE))
    cli("down", "--name", NAME, "--plain")
    assert differences(before, traces(NAME)) == {}


def kubectl(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return cli("kubectl", "--name", NAME, "--", *arguments, check=check)


def apply(folder: Path, obj: Json) -> None:
    path = folder / f"{obj['metadata']['name']}.json"
    path.write_text(json.dumps(obj))
    kubectl("apply", "-f", str(path))


def joined(cluster: Cluster, *more: str) -> subprocess.CompletedProcess[str]:
    line = (sys.executable, "-m", "cli", "join", "--plain", "--node-name=node2", "--network-policy")
    return in_node2(cluster, *line, *more)


def run_pod(folder: Path, name: str, node: str, *arguments: str) -> None:
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": IMAGE, "args": list(arguments)}],
        },
    }
    apply(folder, pod)
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")


def test_without_the_right_to_read_pods_it_says_what_an_admin_applies(cluster: Cluster) -> None:
    token = json.loads((STATE / NAME / "kubeadm.json").read_text())["token"]
    refused = joined(cluster, cluster.api_url, f"--token={token}", "--ca-file=/etc/kubernetes/pki/ca.crt")
    assert refused.returncode == 1 and "may not list" in refused.stderr, refused.stderr
    assert "join --print-rights --network-policy" in refused.stderr


def test_the_node_enforces_policies(cluster: Cluster, tmp_path: Path) -> None:
    admin = STATE / NAME / "node2/commands/admin.conf"
    shutil.copy(cluster.admin_kubeconfig, admin)
    done = joined(cluster, f"--kubeconfig={admin}")
    assert done.returncode == 0 and "network policies: enforced" in done.stdout, done.stderr
    run_pod(tmp_path, "server", "node2", "netexec", "--http-port=8080")
    run_pod(tmp_path, "client", "node1", "pause")
    address = kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}").stdout
    request = ("exec", "client", "--", "curl", "-s", "-m", "5", f"http://{address}:8080/hostname")
    assert kubectl(*request).stdout == "server"
    apply(tmp_path, CLOSED)
    until(lambda: kubectl(*request, check=False).returncode != 0, "the policy refuses the client", 60)
    until(lambda: "NetworkPolicyDropped" in kubectl("get", "events").stdout, "an event says so", 60)


def test_leave_removes_the_rules(cluster: Cluster) -> None:
    assert "nodewright-policy" in in_node2(cluster, "nft", "list", "tables").stdout
    done = in_node2(cluster, sys.executable, "-m", "cli", "leave", "--plain")
    assert done.returncode == 0, done.stderr
    assert "nodewright-policy" not in in_node2(cluster, "nft", "list", "tables").stdout
