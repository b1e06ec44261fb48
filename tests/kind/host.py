"""The Docker host of machine.sh with a cluster of kind's, and a node of ours that joins it from there."""

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

from controlplane.cluster.edge.roots import cache_root
from tests.cluster.command_line import PROJECT, until

STATE = Path(cache_root(), "kind")
MACHINE, IMAGES = PROJECT / "tests/kind/machine.sh", PROJECT / "tests/kind/images.sh"
KUBECONFIG = STATE / "made/kubeconfig"
CONTROL_PLANE, OUTSIDE = "kind-control-plane", "outside"
FORWARDED = "10.244.0.0/16"  # kind's pods, whose packets Docker's rules do not let pass between networks


def missing() -> str:
    """Why there can be no such host here, or nothing."""
    if os.geteuid() != 0:
        return "a Docker host needs root"
    absent = [name for name in ("debootstrap", "go", "unshare", "findmnt") if not shutil.which(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if not (os.environ.get("NODEWRIGHT_KINDNETD") or (STATE / "made/kindnetd").exists()):
        return "kindnetd is a module that not every proxy has: name a build of it in NODEWRIGHT_KINDNETD"
    return ""


def run(*argv: str | Path, check: bool = True, timeout: float = 600, text: str = "") -> str:
    environment = {**os.environ, "NODEWRIGHT_PYTHON": sys.executable}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=environment, input=text)
    assert done.returncode == 0 or not check, f"{argv}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + ("" if check else done.stderr)


def inside(*argv: str | Path) -> tuple[str | Path, ...]:
    """A command line of the Docker host, where the programs of a node are in PATH as if they were installed."""
    path = f"PATH={STATE}/made/programs:{os.environ['PATH']}"
    return (MACHINE, "exec", "env", path, f"PYTHONPATH={PROJECT}", *argv)


def on_host(*argv: str | Path, check: bool = True, timeout: float = 600, text: str = "") -> str:
    return run(*inside(*argv), check=check, timeout=timeout, text=text)


def cli_on_host(*argv: str | Path, check: bool = True, timeout: float = 600) -> str:
    return on_host(sys.executable, "-m", "cli", *argv, "--plain", check=check, timeout=timeout)


def kubectl(*argv: str, text: str = "") -> str:
    return on_host("docker", "exec", "-i", CONTROL_PLANE, "kubectl", *argv, text=text)


@contextmanager
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
    own = ("env", f"KUBECONFIG={KUBECONFIG}", "kind")
    on_host(*own, "delete", "cluster")  # of a run that was killed
    try:
        config = f"--config={PROJECT}/tests/kind/cluster.yaml"
        yield on_host(*own, "create", "cluster", f"--image={image}", config, "--wait=180s", check=False)
    finally:
        on_host(*own, "delete", "cluster")


@contextmanager
def joined() -> Iterator[None]:
    """The host is the node `outside` of kind's cluster, and leaves it in the end."""
    address = on_host("docker", "inspect", "-f", "{{.NetworkSettings.Networks.kind.IPAddress}}", CONTROL_PLANE).strip()
    printed = on_host("docker", "exec", CONTROL_PLANE, "kubeadm", "token", "create", "--print-join-command").split()
    token, pin = (printed[printed.index(flag) + 1] for flag in ("--token", "--discovery-token-ca-cert-hash"))
    server = f"https://{address}:6443"
    _join(address, ("join", server, f"--token={token}", f"--ca-hash={pin}", f"--node-name={OUTSIDE}"))
    until(partial(are_ready, OUTSIDE, "kindnet", "kube-proxy"), "the cluster's DaemonSets run on our node", 120)
    yield
    cli_on_host("leave")
    kubectl("delete", "node", OUTSIDE)
    assert on_host("ls", "/var/lib/kubelet") == ""


def _join(address: str, join: tuple[str, ...]) -> None:
    """As docs/kind.md says it."""
    # containerd runs then, and takes images, but the node needs the name of the API server.
    line = f"{address} {CONTROL_PLANE}"
    on_host("sh", "-c", f"grep -v {CONTROL_PLANE} /etc/hosts >/var/hosts; cat /var/hosts >/etc/hosts")
    unnamed = cli_on_host(*join, check=False)
    assert "/etc/hosts" in unnamed and line in unnamed, unnamed
    on_host("sh", "-c", f"echo '{line}' >>/etc/hosts")
    for way in ("-s", "-d"):
        on_host("iptables", "-I", "DOCKER-USER", way, FORWARDED, "-j", "ACCEPT")
    command = f"{sys.executable} -m cli {' '.join(join)} --plain"
    # By a file: what a process writes last may be lost on the way out of `docker exec` when it ends.
    archive = "/var/images.tar"
    wanted = '$(ctr -n k8s.io images ls -q | grep -E "/(kindnetd|kube-proxy|pause):")'
    on_host("docker", "exec", CONTROL_PLANE, "sh", "-c", f"ctr -n k8s.io images export {archive} {wanted}")
    on_host("docker", "cp", f"{CONTROL_PLANE}:{archive}", archive)
    copy = f"ctr -n k8s.io images import {archive}"
    tag = "ctr -n k8s.io images tag --force registry.k8s.io/pause:3.10 registry.k8s.io/pause:3.10.2"
    waits = "for _ in $(seq 1 150); do ctr version >/dev/null 2>&1 && break; sleep 0.2; done"
    said = on_host("bash", "-c", f"{command} & joined=$!; {waits}; {copy} && {tag} && wait $joined", check=False)
    assert f"Node {OUTSIDE} is Ready" in said and "pod network: DaemonSet kindnet" in said, said


def are_ready(node: str, *owners: str) -> bool:
    """Whether the pods of a node that these own are Ready."""
    rows = json.loads(kubectl("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "json"))["items"]
    found = {
        row["metadata"]["ownerReferences"][0]["name"]: any(
            one["type"] == "Ready" and one["status"] == "True" for one in row["status"].get("conditions", [])
        )
        for row in rows
    }
    return all(found.get(owner) for owner in owners)
