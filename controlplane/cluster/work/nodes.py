"""Starts the nodes: their files, containerd with images, agent and proxy."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import components, daemon_configs, node_files
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.readiness import runtime_problem
from controlplane.cluster.plan.tracing import runtime_environment
from controlplane.cluster.work import logins
from controlplane.cluster.work.control_plane import fail_if_exiting, start_unit, starts
from controlplane.machine.edge import files, oom, process_one
from controlplane.progress import Say
from controlplane.supervisor.edge import units
from controlplane.supervisor.edge.procfs import age
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.files import text_of
from nodelib.inner_sockets import reached

_LOG_BYTES = 128 << 10  # of one start of containerd
_AGAIN_AFTER = 2.0  # seconds
RUNTIME_CONFIG = "etc-containerd/config.toml"  # below a node's folder
KUBELET_CONFIG = "kubernetes/kubelet.yaml"
_RESOLVED = "/run/systemd/resolve/resolv.conf"


def seed_runtime(cluster: Cluster, node: Node, images: Mapping[str, Path], containerd: Path, say: Say) -> bool:
    """Give a node without a containerd root one that holds the images. False if it has one already.

    Call it before the node's mounts are made: they bind the directory that exists then.
    """
    from controlplane.images.edge.seed import seed_containerd_root

    own = Path(cluster.node_dir(node.name))
    root, partial, layers = own / node_files.CONTAINERD_ROOT, own / "containerd.new", own / node_files.IMAGE_LAYERS
    if root.exists() and any(root.iterdir()):
        return False
    for left in (partial, layers):  # from an interrupted `up`
        shutil.rmtree(left, ignore_errors=True)
    seed_containerd_root(
        partial, images, containerd=containerd, cache_dir=Path(cache_root()), progress=say, layers=layers
    )
    if root.exists():
        root.rmdir()
    partial.rename(root)
    return True


def write_files(cluster: Cluster, node: Node) -> frozenset[str]:
    """Write directories and configuration of a node; files that are already right are not touched.

    Returns the names of those that another text was written to.
    """
    own = cluster.node_dir(node.name)
    for name in (
        *node_files.NODE_DIRS,
        "log",
        "supervisor",
        "commands",
        "kubernetes/manifests",
    ):  # after seed_runtime, which needs an empty containerd root
        os.makedirs(f"{own}/{name}", mode=0o755, exist_ok=True)
    config = daemon_configs.containerd_config(
        restrict_oom_score_adj=not oom.may_lower_score(),
        durable=cluster.options.durable,
        runc=cluster.tools.get("runc", ""),
        logins=logins.load(cluster),
        traced=bool(runtime_environment(cluster, node)),
    )
    logins.write_hosts(cluster, node)
    resolv = resolv_conf(cluster)
    files = {
        "hosts": node_files.hosts(cluster),
        "hostname": f"{node.name}\n",
        RUNTIME_CONFIG: config,
    }
    if not cluster.options.kubeadm:
        files[KUBELET_CONFIG] = daemon_configs.kubelet_config(cluster, node)
        files["kubernetes/proxy.yaml"] = daemon_configs.proxy_config(cluster, node)
    secret = any(one.username for one in cluster.options.custom.registries)
    changed = []
    for name, text in files.items():
        mode = 0o600 if secret and name == RUNTIME_CONFIG else node_files.mode(name)
        if _rewrite(f"{own}/{name}", text, mode):
            changed.append(name)
    if not os.path.exists(f"{own}/machine-id"):
        _rewrite(f"{own}/machine-id", f"{secrets.token_hex(16)}\n")
    if cluster.options.kubeadm and "nameserver" not in resolv:
        # kubeadm's CoreDNS forwards unknown names, and exits if there is no server to forward to.
        resolv += f"nameserver {cluster.host_address}\n"
    _rewrite(f"{own}/resolv.conf", resolv)
    return frozenset(changed)


def resolv_conf(cluster: Cluster) -> str:
    """/etc/resolv.conf of the nodes, by the network that this machine is in now."""
    return node_files.resolv_conf(text_of("/etc/resolv.conf"), text_of(_RESOLVED), cluster.options.uplink)


def _rewrite(path: str, text: str, mode: int = 0o644) -> bool:
    """Whether another text was there before, which a daemon may have read."""
    # In place: if a bind-mounted file were replaced, the node would keep the old one. A pod may leave a link or a pipe.
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        os.unlink(path)
    try:
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        files.write(path, text, mode)
        return False
    with open(number, "r+b") as file:
        os.fchmod(number, mode)
        wanted = text.encode()
        if file.read(len(wanted) + 1) == wanted:
            return False
        file.seek(0)
        file.truncate()
        file.write(wanted)
    return True


def start_runtime(cluster: Cluster, node: Node, tools: Tools) -> None:
    """Start containerd; on a second `up` also what ran before, so that it is left alone."""
    if "agent" in units.programs(cluster.unit_dir(node.name)):
        start_daemons(cluster, node, tools)
    else:
        start_unit(cluster, node.name, (components.runtime(cluster, node, tools),), tools.project)


def start_daemons(cluster: Cluster, node: Node, tools: Tools) -> None:
    """Start containerd, agent and proxy, what enforces policies, announces addresses and provides volumes."""
    start_unit(cluster, node.name, components.programs(cluster, node.name, tools), tools.project)


def boot_time(cluster: Cluster, node: Node) -> str:
    """When the node's process 1 was started, as RFC 3339 in UTC; "" if it never was."""
    at = process_one.boot_time(units.machine_lock(cluster.unit_dir(node.name)))
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def agent_runs_for(cluster: Cluster, node: Node) -> float:
    """For how many seconds the node's agent has been running, 0 if it is not."""
    row = units.programs(cluster.unit_dir(node.name)).get("agent")
    return age(int(row["pid"])) if row and row["alive"] else 0.0


def restart_agent(cluster: Cluster, node: Node) -> None:
    """Restart a running agent through its supervisor: it sets up the pod network's routes when it starts."""
    units.terminate(cluster.unit_dir(node.name), "agent")


async def restart_runtime(cluster: Cluster, node: Node, clock: Clock) -> None:
    """Restart a running containerd through its supervisor: it reads its configuration when it starts."""
    folder = cluster.unit_dir(node.name)
    row = units.programs(folder).get("containerd")
    if not row or not row["alive"]:
        return
    units.terminate(folder, "containerd")

    async def waits_for() -> str:  # the old one still accepts connections for a moment
        return "" if starts(cluster, node.name).get("containerd", 0) > int(row["starts"]) else "the old one still runs"

    await until(
        waits_for,
        clock,
        30,
        obj=f"{node.name}/containerd",
        step="restart, for its new configuration",
        action=f"Its log: {cluster.log_dir(node.name)}/containerd.log",
        pause=0.02,
    )


async def wait_runtime(cluster: Cluster, node: Node, clock: Clock, *, timeout: float = 60) -> None:
    """Wait until the node's containerd listens. Raises Temporary with the end of its log when it cannot start."""
    log = f"{cluster.log_dir(node.name)}/containerd.log"
    before = starts(cluster, node.name)

    async def waits_for() -> str:
        pid = process_one.alive(units.machine_lock(cluster.unit_dir(node.name)))
        # The socket is in the node's own /run, which is reached through the root of its processes.
        if pid and _listens(f"/proc/{pid}/root{node_files.CONTAINERD_SOCKET}"):
            if problem := runtime_problem(units.end_of(log, _LOG_BYTES)):
                # It would never serve a pod. Its supervisor starts it again, and then it may find what it lacked.
                units.terminate(cluster.unit_dir(node.name), "containerd")
                await clock.sleep(_AGAIN_AFTER)
            return problem
        fail_if_exiting(cluster, node.name, before)
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


def _listens(path: str) -> bool:
    """Whether a server accepts connections there: a killed one leaves its socket's file behind."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            with reached(path) as way:
                client.connect(way)
        except OSError:
            return False
    return True
