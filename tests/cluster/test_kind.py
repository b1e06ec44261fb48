"""A real cluster of kind: `nodewright join` beside it, and our agent in the kubelet's place in a node image of kind's.

kind's own binary, Docker from Debian in namespaces of its own, a node image that `kind build node-image` made without a
registry (tests/kind). Takes ten minutes the first time: run by hand (`pytest tests/cluster/test_kind.py -m soak`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from controlplane.images.plan.image_names import BUSYBOX_NAME
from controlplane.images.work import ensure_images
from tests.cluster.command_line import PROJECT, until

STATE = Path(cache_root(), "kind")
MACHINE, IMAGES = PROJECT / "tests/kind/machine.sh", PROJECT / "tests/kind/images.sh"
FORWARDED = "10.244.0.0/16"  # kind's pods, whose packets Docker's rules do not let pass between networks


def _missing() -> str:
    if os.geteuid() != 0:
        return "a Docker host needs root"
    absent = [name for name in ("debootstrap", "go", "unshare", "findmnt") if not shutil.which(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if not (os.environ.get("NODEWRIGHT_KINDNETD") or (STATE / "made/kindnetd").exists()):
        return "kindnetd is a module that not every proxy has: name a build of it in NODEWRIGHT_KINDNETD"
    return ""


pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.skipif(bool(_missing()), reason=_missing())]


def run(*argv: str | Path, check: bool = True, timeout: float = 600, text: str = "") -> str:
    environment = {**os.environ, "NODEWRIGHT_PYTHON": sys.executable}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=environment, input=text)
    assert done.returncode == 0 or not check, f"{argv}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + ("" if check else done.stderr)


def on_host(*argv: str | Path, check: bool = True, timeout: float = 600, text: str = "") -> str:
    """Run on the Docker host, where the programs of a node are in PATH as if they were installed."""
    path = f"PATH={STATE}/made/programs:{os.environ['PATH']}"
    return run(MACHINE, "exec", "env", path, *argv, check=check, timeout=timeout, text=text)


def kubectl(*argv: str, text: str = "") -> str:
    return on_host("docker", "exec", "-i", "kind-control-plane", "kubectl", *argv, text=text)


@pytest.fixture(scope="module", autouse=True)
def docker_host() -> Iterator[None]:
    """dockerd with the images."""
    run(MACHINE, "start")
    try:
        run(IMAGES, STATE / "made", timeout=1800)
        on_host("iptables", "-P", "FORWARD", "DROP")  # Docker's own setting where it switched forwarding on
        on_host("rm", "-f", "/etc/containerd/config.toml")  # of Debian's containerd, which came with docker.io
        yield
    finally:
        run(MACHINE, "stop")


@contextmanager
def kind_cluster(image: str) -> Iterator[str]:
    """Yields what kind said."""
    own = ("env", f"KUBECONFIG={STATE}/made/kubeconfig", "kind")
    on_host(*own, "delete", "cluster")  # of a run that was killed
    try:
        config = f"--config={PROJECT}/tests/kind/cluster.yaml"
        yield on_host(*own, "create", "cluster", f"--image={image}", config, "--wait=180s", check=False)
    finally:
        on_host(*own, "delete", "cluster")


def pods_on(node: str) -> dict[str, bool]:
    """Whether each pod of a node is Ready, by the name of what owns it."""
    rows = json.loads(kubectl("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "json"))["items"]
    return {
        row["metadata"]["ownerReferences"][0]["name"]: any(
            one["type"] == "Ready" and one["status"] == "True" for one in row["status"].get("conditions", [])
        )
        for row in rows
    }


def _are_ready(node: str, *owners: str) -> bool:
    found = pods_on(node)
    return all(found.get(owner) for owner in owners)


def load_busybox(*, host: bool) -> None:
    binaries = ensure((), cache_dir=Path(cache_root()))
    archive = ensure_images([BUSYBOX_NAME], cache_dir=Path(cache_root()), binaries=binaries)[BUSYBOX_NAME]
    on_host("kind", "load", "image-archive", archive)
    if host:
        on_host("ctr", "-n", "k8s.io", "images", "import", archive)


def ask(pod: str, url: str) -> str:
    return kubectl("exec", pod, "--", "wget", "-q", "-T", "10", "-O-", url).strip()


def test_a_node_that_joined_beside_kind_and_left() -> None:
    with kind_cluster("localhost/kind-node") as said:
        assert "Ready after" in said, said
        address = on_host(
            "docker", "inspect", "-f", "{{.NetworkSettings.Networks.kind.IPAddress}}", "kind-control-plane"
        )
        words = on_host(
            "docker", "exec", "kind-control-plane", "kubeadm", "token", "create", "--print-join-command"
        ).split()
        token, pin = (words[words.index(flag) + 1] for flag in ("--token", "--discovery-token-ca-cert-hash"))
        join = (
            "join",
            f"https://{address.strip()}:6443",
            f"--token={token}",
            f"--ca-hash={pin}",
            "--node-name=outside",
        )
        _join(address.strip(), join)
        until(partial(_are_ready, "outside", "kindnet", "kube-proxy"), "the cluster's DaemonSets run on our node", 120)
        _pods_talk()
        on_host(sys.executable, "-m", "cli", "leave", "--plain")
        kubectl("delete", "node", "outside")
        assert on_host("ls", "/var/lib/kubelet") == ""


def _join(address: str, join: tuple[str, ...]) -> None:
    """As docs/kind.md says it."""
    environment = ("env", f"PYTHONPATH={PROJECT}")
    # containerd runs then, and takes images, but the node needs the name of the API server.
    unnamed = on_host(*environment, sys.executable, "-m", "cli", *join, "--plain", check=False)
    line = f"{address} kind-control-plane"
    assert "/etc/hosts" in unnamed and line in unnamed, unnamed
    on_host("sh", "-c", f"echo '{line}' >>/etc/hosts")
    for way in ("-s", "-d"):
        on_host("iptables", "-I", "DOCKER-USER", way, FORWARDED, "-j", "ACCEPT")
    command = f"PYTHONPATH={PROJECT} {sys.executable} -m cli {' '.join(join)} --plain"
    # By a file: what a process writes last may be lost on the way out of `docker exec` when it ends.
    archive = "/var/images.tar"
    wanted = '$(ctr -n k8s.io images ls -q | grep -E "/(kindnetd|kube-proxy|pause):")'
    on_host("docker", "exec", "kind-control-plane", "sh", "-c", f"ctr -n k8s.io images export {archive} {wanted}")
    on_host("docker", "cp", f"kind-control-plane:{archive}", archive)
    copy = f"ctr -n k8s.io images import {archive}"
    tag = "ctr -n k8s.io images tag --force registry.k8s.io/pause:3.10 registry.k8s.io/pause:3.10.2"
    waits = "for _ in $(seq 1 150); do ctr version >/dev/null 2>&1 && break; sleep 0.2; done"
    said = on_host("bash", "-c", f"{command} & joined=$!; {waits}; {copy} && {tag} && wait $joined", check=False)
    assert "Node outside is Ready" in said and "pod network: DaemonSet kindnet" in said, said


def _service_leads(pod: str, node: str) -> bool:
    return ask(pod, "http://web.default.svc.cluster.local/") == node


def _pods_talk() -> None:
    load_busybox(host=True)
    kubectl("apply", "-f", "-", text=(PROJECT / "tests/kind/web.yaml").read_text())
    kubectl("rollout", "status", "ds/web", "--timeout=120s")
    rows = json.loads(kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    by_node = {row["spec"]["nodeName"]: row for row in rows}
    assert set(by_node) == {"kind-control-plane", "outside"}
    for here, there in (("outside", "kind-control-plane"), ("kind-control-plane", "outside")):
        pod = by_node[here]["metadata"]["name"]
        assert ask(pod, f"http://{by_node[there]['status']['podIP']}:8080/") == there
        until(partial(_service_leads, pod, there), f"the Service leads {here} to {there}")
        assert kubectl("logs", pod) == ""


def test_our_agent_in_the_kubelet_s_place_in_a_node_image() -> None:
    with kind_cluster("localhost/kind-nodewright") as said:
        assert "Ready after" in said, said
        process = on_host(
            "docker",
            "exec",
            "kind-control-plane",
            "sh",
            "-c",
            "readlink /proc/$(systemctl show -P MainPID kubelet)/exe; pidof kubelet",
        )
        assert "python3" in process.splitlines()[0] and len(process.splitlines()[1].split()) == 1
        load_busybox(host=False)
        kubectl("apply", "-f", "-", text=(PROJECT / "tests/kind/web.yaml").read_text())
        kubectl("rollout", "status", "ds/web", "--timeout=120s")
        pod = kubectl("get", "pods", "-l", "app=web", "-o", "name").strip()
        assert ask(pod, "http://web.default.svc.cluster.local/") == "kind-control-plane"
        assert "kind-control-plane" in kubectl("exec", pod, "--", "cat", "/www/index.html")
