"""Raises the nodes: their files, containerd with images, agent and proxy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import components, node_files
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.control_plane import fail_if_ending, start_unit, starts
from controlplane.machine.edge import files, oom
from controlplane.progress import Say
from controlplane.supervisor.edge import units
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.files import text_of

_RESOLVED = "/run/systemd/resolve/resolv.conf"


def seed_runtime(cluster: Cluster, node: Node, images: Mapping[str, Path], containerd: Path, say: Say) -> bool:
    """Give a node that has no containerd root yet one with the images in it. False if it has one.

    Must come before the node's mounts: they bind the directory that is there then.
    """
    from controlplane.images.edge.seed import seed_containerd_root

    own = Path(cluster.node_dir(node.name))
    root, partial = own / "containerd", own / "containerd.new"
    if root.exists() and any(root.iterdir()):
        return False
    shutil.rmtree(partial, ignore_errors=True)  # of an `up` that was cut short
    seed_containerd_root(partial, images, containerd=containerd, cache_dir=Path(cache_root()), progress=say)
    if root.exists():
        root.rmdir()
    partial.rename(root)
    return True


def write_files(cluster: Cluster, node: Node) -> None:
    """Directories and configuration of a node; what is as it should be is not touched."""
    own = cluster.node_dir(node.name)
    for name in (
        *node_files.NODE_DIRS,
        "log",
        "kubernetes/manifests",
    ):  # after seed_runtime: it wants no containerd yet
        os.makedirs(f"{own}/{name}", mode=0o755, exist_ok=True)
    config = node_files.containerd_config(
        restrict_oom_score_adj=not oom.may_lower_score(), durable=cluster.options.durable
    )
    resolv = node_files.resolv_conf(text_of("/etc/resolv.conf"), text_of(_RESOLVED), cluster.options.uplink)
    files = {
        "hosts": node_files.hosts(cluster),
        "hostname": f"{node.name}\n",
        "etc-containerd/config.toml": config,
    }
    if not cluster.options.kubeadm:
        files["kubernetes/kubelet.yaml"] = node_files.kubelet_config(cluster, node)
        files["kubernetes/proxy.yaml"] = node_files.proxy_config(cluster, node)
    for name, text in files.items():
        _rewrite(f"{own}/{name}", text)
    if cluster.options.kubeadm and "nameserver" not in resolv:
        # kubeadm's CoreDNS forwards what it does not know, and ends when there is nobody to forward to.
        resolv += f"nameserver {cluster.host_address}\n"
    _rewrite(f"{own}/resolv.conf", resolv)


def _rewrite(path: str, text: str) -> None:
    # In place: a bind-mounted file that is replaced would keep its old content inside of the node.
    if os.path.exists(path) and text_of(path) == text:
        return
    if os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        files.write(path, text, 0o644)


def start_runtime(cluster: Cluster, node: Node, tools: Tools) -> None:
    """containerd (and what else of the node ran before, so that a second `up` leaves it alone)."""
    if "agent" in units.programs(cluster.unit_dir(node.name)):
        start_daemons(cluster, node, tools)
    else:
        start_unit(cluster, node.name, (components.runtime(cluster, node, tools),), tools.project)


def start_daemons(cluster: Cluster, node: Node, tools: Tools) -> None:
    """containerd, agent and proxy."""
    programs = (
        components.runtime(cluster, node, tools),
        components.agent(cluster, node, tools),
        components.proxy(cluster, node, tools),
    )
    start_unit(cluster, node.name, programs, tools.project)


def restart_agent(cluster: Cluster, node: Node) -> None:
    """Have a running agent started anew by its supervisor: it sets up the pod network's routes when it starts."""
    units.terminate(cluster.unit_dir(node.name), "agent")


async def wait_runtime(cluster: Cluster, node: Node, clock: Clock, *, timeout: float = 60) -> None:
    """Until the node's containerd listens. Raises Temporary with its last words when it cannot."""
    log = f"{cluster.log_dir(node.name)}/containerd.log"
    before = starts(cluster, node.name)

    async def waits_for() -> str:
        pid = units.living(cluster.unit_dir(node.name))
        # The socket lies in the node's own /run; its processes' root is the way there.
        if pid and os.path.exists(f"/proc/{pid}/root{node_files.CONTAINERD_SOCKET}"):
            return ""
        fail_if_ending(cluster, node.name, before)
        return f"no socket: {units.tail(log, 2)}"

    await until(
        waits_for,
        clock,
        timeout,
        obj=f"{node.name}/containerd",
        step="start",
        action=f"Its log: {log}",
        pause=0.02,
    )
