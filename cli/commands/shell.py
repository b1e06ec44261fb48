"""`nodewright shell`: a shell or a command on a node of a cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cli.clusters import reachable
from cli.errors import need_root
from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET, SYSTEM_PATH
from controlplane.machine.edge import cgroups, terminal
from controlplane.machine.edge.namespaces import in_cgroups, in_node, is_bound
from nodelib.errors import NotFound, Temporary


def run(name: str, node: str, arguments: list[str]) -> None:
    """Run the command on the node, or a shell there; end with its exit status."""
    need_root("shell")
    cluster = reachable(name)
    names = [one.name for one in cluster.nodes]
    if node not in names:
        raise NotFound("no such node in the cluster", obj=node, action=f"There are: {', '.join(names)}.")
    if not is_bound(cluster.namespace(node, "pid")):
        raise Temporary("is not running", obj=f"node {node}", action=f"{ours(name, 'up')} starts it.")
    command = arguments or [shutil.which("bash", path=SYSTEM_PATH) or "/bin/sh"]
    folders = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/{node}/system")
    argv = in_cgroups(folders, in_node(cluster.namespaces(node), command))
    raise SystemExit(terminal.run(argv, environment(cluster, os.environ.get("TERM", "dumb"))))


def environment(cluster: Cluster, term: str) -> dict[str, str]:
    """What a person on the node finds set: `ctr` and `crictl` know the runtime, and `kubectl` the node's own rights."""
    folders = {str(Path(cluster.tools[name]).parent) for name in ("ctr", "kubectl") if name in cluster.tools}
    return {
        "PATH": ":".join((*sorted(folders), SYSTEM_PATH)),
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TERM": term,
        "CONTAINER_RUNTIME_ENDPOINT": f"unix://{CONTAINERD_SOCKET}",
        "IMAGE_SERVICE_ENDPOINT": f"unix://{CONTAINERD_SOCKET}",
        "CONTAINERD_ADDRESS": CONTAINERD_SOCKET,
        "CONTAINERD_NAMESPACE": "k8s.io",
        "KUBECONFIG": "/etc/kubernetes/kubelet.conf",
    }
