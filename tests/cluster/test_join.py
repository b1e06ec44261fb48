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
from controlplane.host.work.install import install
from controlplane.machine.edge import cgroups
from controlplane.machine.edge.namespaces import in_cgroups, in_node
from nodelib.version import KUBERNETES_VERSION
from tests.cluster.command_line import PROJECT, STATE, cli, differences, traces, until

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


def in_node2(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run in the node's namespaces, and in the cgroup whose processes `down` kills."""
    folders = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/node2/system")
    line = in_cgroups(folders, in_node(cluster.namespaces("node2"), argv))
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(line, capture_output=True, text=True, timeout=180, env=environment)


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


def _private(*names: str) -> bool:
    found = [os.stat(STATE / NAME / "node2" / name) for name in names]
    return all(one.st_mode & 0o077 == 0 for one in found)


def _root_owned(*names: str) -> bool:
    found = [os.stat(STATE / NAME / "node2" / name) for name in names]
    return all((one.st_uid, one.st_gid) == (0, 0) for one in found)


def test_the_controls_of_the_cis_benchmark_for_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Sections 4.1 to 4.3 (https://www.cisecurity.org/benchmark/kubernetes), on the node that we joined.

    The unit file is what `install` writes; a node in namespaces has no systemd.
    """
    asyncio.run(install("/srv/nodewright", str(tmp_path)))
    unit = (tmp_path / "etc/systemd/system/kubelet.service").stat()
    config = json.loads(kubectl("get", "--raw", "/api/v1/nodes/node2/proxy/configz"))["kubeletconfig"]
    kubelet = json.loads((STATE / NAME / "node2/kubelet/nodewright/spec.json").read_text())["programs"][-1]["argv"]
    conf, proxy = "kubernetes/kubelet.conf", "kubernetes/nodewright-proxy.yaml"
    authority, yaml = "kubernetes/pki/ca.crt", "kubelet/config.yaml"
    proxy_map = json.loads(kubectl("-n", "kube-system", "get", "cm", "kube-proxy", "-o", "json"))["data"]["config.conf"]
    controls = {
        "4.1.1 unit file is private": unit.st_mode & 0o777 == 0o600,
        "4.1.2 unit file is root's": (unit.st_uid, unit.st_gid) == (0, 0),
        "4.1.3 kubeconfig of the proxy is private": _private(proxy, conf),
        "4.1.4 kubeconfig of the proxy is root's": _root_owned(proxy, conf),
        "4.1.5 kubelet.conf is private": _private(conf),
        "4.1.6 kubelet.conf is root's": _root_owned(conf),
        "4.1.7 client CA is private": _private(authority),
        "4.1.8 client CA is root's": _root_owned(authority),
        "4.1.9 config.yaml is private": _private(yaml),
        "4.1.10 config.yaml is root's": _root_owned(yaml),
        "4.2.1 no anonymous access": config["authentication"]["anonymous"]["enabled"] is False,
        "4.2.2 not AlwaysAllow": config["authorization"]["mode"] == "Webhook",
        "4.2.3 client CA is set": bool(config["authentication"]["x509"]["clientCAFile"]),
        "4.2.4 no read-only port": config["readOnlyPort"] == 0,
        "4.2.5 idle streams end": config["streamingConnectionIdleTimeout"] not in ("", "0s"),
        "4.2.6 iptables chains": config["makeIPTablesUtilChains"] is True,
        "4.2.7 the name is the host's": f"--hostname-override={cluster.nodes[1].name}" in kubelet,
        "4.2.8 events are limited": config["eventRecordQPS"] > 0,
        "4.2.9 served over TLS": config["enableServer"] is True,
        "4.2.10 client certificate rotates": config["rotateCertificates"] is True,
        "4.2.11 serving certificate may rotate": "RotateKubeletServerCertificate=false" not in " ".join(kubelet),
        "4.2.12 strong ciphers alone": all("GCM" in name or "CHACHA20" in name for name in config["tlsCipherSuites"]),
        "4.2.13 processes of a pod are limited": config["podPidsLimit"] > 0,
        "4.2.14 seccomp by default": config["seccompDefault"] is True,
        "4.3.1 metrics of the proxy stay here": 'metricsBindAddress: ""' in proxy_map or "127.0.0.1" in proxy_map,
    }
    assert [name for name, good in controls.items() if not good] == []


def test_a_wrong_secret_or_pin_is_named(cluster: Cluster) -> None:
    token = json.loads((STATE / NAME / "kubeadm.json").read_text())["token"]
    join = (sys.executable, "-m", "cli", "join", cluster.api_url, "--plain", AUTHORITY, "--node-name=node2")
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
