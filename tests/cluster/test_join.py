"""`nodewright join` into a cluster like those of kind: kubeadm, upstream's kubelet, a CNI and a kube-proxy DaemonSet.

Takes more than a minute: run by hand (`pytest tests/cluster/test_join.py -m soak`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.model import Cluster
from controlplane.doctor.plan.cis import CONTROLS
from controlplane.doctor.work import examine_controls
from nodelib.version import KUBERNETES_VERSION
from tests.cluster.command_line import STATE, cli, differences, traces, until
from tests.cluster.joined_node import in_node2

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

NAME = "tjoin"
PAUSE, MOVED = "registry.k8s.io/pause:3.10.2", 100
JOIN = (sys.executable, "-m", "cli", "join", "--plain")
AUTHORITY = "--ca-file=/etc/kubernetes/pki/ca.crt"  # which the first join wrote
KIND = ("--kubeadm", "--joined", "1", "--network", "kindnet", "--agent", "upstream", "--proxy", "upstream")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """node1 by kubeadm with upstream's kubelet; node2 by `nodewright join` with a token and a pin."""
    cli("down", "--name", NAME, "--plain")
    before = traces(NAME)
    cli("up", "--name", NAME, *KIND, "--no-uplink", "--plain", timeout=900)
    yield Cluster.from_json(json.loads((STATE / NAME / "cluster.json").read_text()), str(STATE))
    cli("down", "--name", NAME, "--plain")
    assert differences(before, traces(NAME)) == {}


def kubectl(*arguments: str) -> str:
    return cli("kubectl", "--name", NAME, "--", *arguments).stdout


def test_the_cluster_brings_network_and_proxy(cluster: Cluster) -> None:
    log = (STATE / NAME / "node2/log/join.log").read_text()
    assert "pod network: DaemonSet kindnet" in log and "service proxy: DaemonSet kube-proxy" in log
    conflists = os.listdir(STATE / NAME / "node2/cni/net.d")
    assert conflists == ["10-kindnet.conflist"]
    pods = kubectl("-n", "kube-system", "get", "pods", "-o", "wide", "--field-selector=spec.nodeName=node2")
    assert "kindnet-" in pods and "kube-proxy-" in pods


def test_pods_of_both_kubelets_talk_both_ways(cluster: Cluster) -> None:
    """`up` has asked the demo, with a pod on each node, by ClusterIP, name and NodePort; now pod to pod."""
    rows = json.loads(kubectl("get", "pods", "-l", "app=demo", "-o", "json"))["items"]
    by_node = {row["spec"]["nodeName"]: row for row in rows}
    assert set(by_node) == {"node1", "node2"}
    for here, there in (("node1", "node2"), ("node2", "node1")):
        address = by_node[there]["status"]["podIP"]
        name = by_node[here]["metadata"]["name"]
        for url in (f"http://{address}:8080/hostname", "http://demo.default.svc.cluster.local/hostname"):
            assert kubectl("exec", name, "--", "curl", "-s", "-m", "10", url)


def _movers() -> dict[str, int]:
    """How many of the moved pods are Ready, by node."""
    rows = json.loads(kubectl("get", "pods", "-l", "app=movers", "-o", "json"))["items"]
    ready = [row for row in rows if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions(row))]
    return dict(Counter(row["spec"]["nodeName"] for row in ready if "deletionTimestamp" not in row["metadata"]))


def _all_on(node: str) -> bool:
    return _movers() == {node: MOVED}


def conditions(row: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = row["status"].get("conditions") or []
    return found


def test_a_hundred_pods_move_between_the_kubelets_and_back(cluster: Cluster, stats: list[tuple[str, str]]) -> None:
    """By drain, as an administrator moves them: off upstream's kubelet onto ours, and off ours again."""
    kubectl("create", "deployment", "movers", f"--image={PAUSE}", f"--replicas={MOVED}")
    until(lambda: sum(_movers().values()) == MOVED, f"{MOVED} pods are Ready", 600)
    try:
        for emptied, filled in (("node1", "node2"), ("node2", "node1")):
            began = time.monotonic()
            drain = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=600s")
            cli("kubectl", "--name", NAME, "--", "drain", emptied, *drain, timeout=660)
            until(partial(_all_on, filled), f"all are Ready on {filled}", 600)
            assert _movers() == {filled: MOVED}
            stats.append((f"{MOVED} pods from {emptied} to {filled}", f"{time.monotonic() - began:.1f} s"))
            kubectl("uncordon", emptied)
    finally:
        kubectl("uncordon", "node1", "node2")
        kubectl("delete", "deployment", "movers", "--wait=true", "--cascade=foreground", "--timeout=300s")


def test_the_controls_of_the_cis_benchmark_for_nodes(cluster: Cluster) -> None:
    """Sections 4.1 to 4.3 on the node that we joined, and every one of them judged on upstream's node beside it."""
    findings = asyncio.run(examine_controls(NAME))
    joined = [one for one in findings if one.node == "node2"]
    assert [one.control for one in joined] == list(CONTROLS)
    assert [one for one in joined if one.status != "pass"] == []
    assert {one.source for one in joined} == {"/configz at the agent's socket"}
    starts = next(one for one in joined if one.control == "4.1.1")
    assert starts.finding == "/var/lib/kubelet/nodewright/spec.json has mode 0600"
    upstream = [one for one in findings if one.node == "node1"]
    assert [one for one in upstream if one.status == "unknown"] == []
    assert {one.source for one in upstream} == {"/configz through the API server"}


def test_the_token_does_not_stay_on_the_node(cluster: Cluster) -> None:
    """The kubeconfig with it is removed, and the agent's end needs none."""
    folder = STATE / NAME / "node2/kubernetes"
    assert not (folder / "bootstrap-kubelet.conf").exists()
    token = json.loads((STATE / NAME / "kubeadm.json").read_text())["token"].partition(".")[2]
    held = [path for path in folder.rglob("*") if path.is_file() and token in path.read_text(errors="replace")]
    assert held == []


def test_a_wrong_secret_or_pin_is_named(cluster: Cluster) -> None:
    token = json.loads((STATE / NAME / "kubeadm.json").read_text())["token"]
    join = (sys.executable, "-m", "cli", "join", cluster.api_url, "--plain", AUTHORITY, "--node-name=node2")
    bare = in_node2(cluster, *(word for word in join if word != AUTHORITY), f"--token={token}")
    assert bare.returncode == 2 and "--unsafe-skip-ca-verification" in bare.stderr
    wrong = in_node2(cluster, *join, f"--token={token[:-1]}{'a' if token[-1] != 'a' else 'b'}")
    assert wrong.returncode == 1 and "secret is wrong" in wrong.stderr
    pinned = in_node2(cluster, *join, f"--token={token}", "--ca-hash=sha256:00")
    assert pinned.returncode == 1 and "was expected" in pinned.stderr
    taken = in_node2(cluster, *join[:-1], "--node-name=node1", f"--token={token}")
    assert taken.returncode == 1 and "is already the node node2" in taken.stderr


def test_rights_that_are_missing_are_named_and_printed(cluster: Cluster, tmp_path: Path) -> None:
    """By token, with our proxy beside the cluster's rules: only an administrator can let it read EndpointSlices."""
    printed = subprocess.run([sys.executable, "-m", "cli", "join", "--print-rights"], capture_output=True, text=True)
    (tmp_path / "rights.json").write_text("".join(printed.stdout.partition("{")[1:]))
    bindings = [one for one in json.loads((tmp_path / "rights.json").read_text())["items"] if "roleRef" in one]
    kubectl("delete", "clusterrolebinding", "--ignore-not-found", *(one["metadata"]["name"] for one in bindings))
    token = json.loads((STATE / NAME / "kubeadm.json").read_text())["token"]
    join = (*JOIN, cluster.api_url, f"--token={token}", AUTHORITY, "--node-name=node2", "--pod-network=none")
    refused = in_node2(cluster, *join, "--proxy=nodewright")
    assert refused.returncode == 1 and "may not list endpointslices" in refused.stderr, refused.stderr
    assert "join --print-rights" in refused.stderr
    kubectl("apply", "-f", str(tmp_path / "rights.json"))
    joined = in_node2(cluster, *join, "--proxy=nodewright")
    assert joined.returncode == 0 and "service proxy: nodewright" in joined.stdout, joined.stderr


def test_leave_clears_the_node(cluster: Cluster) -> None:
    done = in_node2(cluster, sys.executable, "-m", "cli", "leave", "--plain")
    assert done.returncode == 0, done.stderr
    assert os.listdir(STATE / NAME / "node2/kubelet") == []
    kubectl("delete", "node", "node2")
    until(lambda: "node2" not in kubectl("get", "nodes"), "the Node is gone")


def test_an_admin_s_kubeconfig_joins_without_a_token(cluster: Cluster) -> None:
    """It creates the token and the permissions itself, and nobody approves anything by hand."""
    admin = STATE / NAME / "node2/commands/admin.conf"  # the same path on the node, which does not see the cluster's
    shutil.copy(cluster.admin_kubeconfig, admin)
    line = (*JOIN, f"--kubeconfig={admin}", "--node-name=node2")
    done = in_node2(cluster, *line)
    assert done.returncode == 0, done.stderr
    assert "Node node2 is Ready" in done.stdout and "pod network: DaemonSet kindnet" in done.stdout
    version = kubectl("get", "node", "node2", "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
    assert version == KUBERNETES_VERSION
    names = kubectl("-n", "kube-system", "get", "secrets", "-o", "name")
    assert "bootstrap-token-" in names  # it ends by itself after an hour


def test_a_kubeconfig_without_the_rights_of_an_admin_is_named(cluster: Cluster) -> None:
    own = "/etc/kubernetes/kubelet.conf"
    done = in_node2(cluster, *JOIN, f"--kubeconfig={own}", "--node-name=node2")
    assert done.returncode == 1 and "Only an admin has these rights" in done.stderr, done.stderr
