"""The pod network for upstream's kubelet, which brings none: the reference bridge plugin and routes between the nodes.

This is what an administrator would set up by hand, and no more.
"""

from __future__ import annotations

import asyncio
import os
import shutil

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.daemon_configs import bridge_conflist
from controlplane.machine.edge import files
from controlplane.machine.edge.netlink import Netlink
from controlplane.machine.model import Route
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NotFound
from nodelib.kube.client import KubeClient

_PLUGINS = ("bridge", "host-local", "portmap")
_SOURCE = "/usr/lib/cni"  # Debian's containernetworking-plugins


async def ensure_network(cluster: Cluster, client: KubeClient, clock: Clock) -> None:
    """Install plugins and configuration on every node, and a route from each node to the pods of every other."""
    cidrs = await _pod_cidrs(cluster, client, clock)
    await asyncio.to_thread(install, cluster, cidrs)
    await asyncio.to_thread(_routes, cluster, cidrs)


async def _pod_cidrs(cluster: Cluster, client: KubeClient, clock: Clock, timeout: float = 60) -> dict[str, str]:
    names = [node.name for node in cluster.nodes]
    found: dict[str, str] = {}

    async def waits_for() -> str:
        for item in (await client.get("/api/v1/nodes"))["items"]:
            found[item["metadata"]["name"]] = str(item["spec"].get("podCIDR", ""))
        missing = [name for name in names if not found.get(name)]
        return f"no podCIDR: {', '.join(missing)}" if missing else ""

    await until(
        waits_for,
        clock,
        timeout,
        obj=f"nodes of {cluster.name}",
        step="wait for the kubelets to register",
        action=f"Their logs: {', '.join(f'{cluster.log_dir(name)}/agent.log' for name in names)}",
    )
    return {name: found[name] for name in names}


def install(cluster: Cluster, cidrs: dict[str, str]) -> None:
    """Install plugins and configuration; `cidrs` by node. Raises NotFound when the machine lacks a plugin."""
    for node, cidr in cidrs.items():
        own = cluster.node_dir(node)
        for name in _PLUGINS:
            source, target = f"{_SOURCE}/{name}", f"{own}/cni/bin/{name}"
            if not os.path.exists(source):
                raise NotFound(
                    "no such CNI plugin",
                    obj=source,
                    step="install CNI plugins for upstream's kubelet",
                    action="apt-get install containernetworking-plugins",
                )
            if os.path.islink(target):  # who is root in the node left it: the copy would be where it leads
                os.unlink(target)
            if not os.path.exists(target):
                shutil.copy2(source, target)
        files.write_if_changed(f"{own}/cni/net.d/10-bridge.conflist", bridge_conflist(cidr), 0o644)


def _routes(cluster: Cluster, cidrs: dict[str, str]) -> None:
    with Netlink(lambda space: cluster.namespace(space, "net")) as netlink:
        for here in cluster.nodes:
            for there in cluster.nodes:
                if here != there:
                    netlink.ensure(Route(here.name, cidrs[there.name], via=there.address))
