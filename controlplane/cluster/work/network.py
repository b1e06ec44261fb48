"""Makes and repairs the namespaces and links of a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import BALANCER, PORTS, Cluster, Node
from controlplane.cluster.plan import node_files
from controlplane.cluster.plan.node_files import readonly_folders
from controlplane.cluster.plan.wiring import wiring
from controlplane.cluster.work import host_changes
from controlplane.images.edge.clone import keep_used
from controlplane.machine.edge import cgroups, namespaces, process_one
from controlplane.machine.edge.netlink import Netlink, ip_route
from controlplane.machine.model import HOST, WIRE, Veth
from controlplane.supervisor.edge import units


async def ensure_network(cluster: Cluster, project: str) -> frozenset[str]:
    """Make namespaces, links, addresses and routes, and the rules of an uplink if the cluster has one.

    Returns the nodes whose link was made: routes of their pod network over an earlier link are lost.
    """
    # This also makes the private mount for the other namespaces.
    await namespaces.make(node_files.wire_namespace(cluster), project)
    async with asyncio.TaskGroup() as group:
        for node in cluster.nodes:
            group.create_task(_machine(cluster, node, project), name=f"namespaces {node.name}")
        preload = group.create_task(asyncio.to_thread(ip_route), name="import netlink")
    await preload
    made = await asyncio.to_thread(_wire, cluster)
    if cluster.options.uplink:
        await host_changes.ensure_uplink(cluster)
    return made


async def _machine(cluster: Cluster, node: Node, project: str) -> None:
    """Start a node's process 1 in namespaces of its own, if there is none."""
    folders = await asyncio.to_thread(_fresh_cgroups, cluster, node)
    tools = [*cluster.tools.values()]
    readonly = readonly_folders([project, cache_root(), sys.prefix, sys.base_prefix, *map(os.path.dirname, tools)])
    own = Path(cluster.node_dir(node.name))
    layers = await asyncio.to_thread(keep_used, own / node_files.IMAGE_LAYERS, own / node_files.CONTAINERD_ROOT)
    spec = node_files.machine(cluster, node, folders, readonly, sys.executable, project, layers)
    await namespaces.make(spec, project)


def _fresh_cgroups(cluster: Cluster, node: Node) -> list[str]:
    """The node's own cgroups: of a node without a process 1, everything that is left in them is ended and removed.

    On v2 nothing could join the cgroup that process 1 starts in if it still had controllers for its children.
    """
    trees, path = cgroups.hierarchies(), f"{cluster.cgroup}/{node.name}"
    if not process_one.alive(units.machine_lock(cluster.unit_dir(node.name))):
        cgroups.kill_all(trees, path)
        cgroups.remove(trees, path)
    folders = cgroups.ensure(trees, path)
    member, every = cluster.member(node.name), cluster.options
    cgroups.limit(folders, cpus=member.cpus or every.cpus, memory=member.memory or every.memory)
    return folders


def _wire(cluster: Cluster) -> frozenset[str]:
    def resolve(space: str) -> str | None:
        return None if space == HOST else cluster.namespace(WIRE if space == WIRE else space, "net")

    with Netlink(resolve) as netlink:
        made = [wanted for wanted in wiring(cluster) if netlink.ensure(wanted)]
    return frozenset(wanted.space for wanted in made if isinstance(wanted, Veth))


def networks_in_use() -> list[str]:
    """Networks of the host's addresses and routes, as text."""
    with Netlink(lambda space: None) as netlink:
        return netlink.networks_in_use()


def unit_namespaces(cluster: Cluster, unit: str) -> list[tuple[str, str]]:
    """Namespaces of the control plane's programs, or of the balancer's: they are in the first node's network or on the
    wire, and otherwise on this machine, out of reach of every node. Ports of this machine are listened to on it."""
    if unit == PORTS:
        return []
    return [("net", cluster.namespace(WIRE if unit == BALANCER else cluster.nodes[0].name, "net"))]
