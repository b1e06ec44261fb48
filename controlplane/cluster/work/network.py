"""Makes and repairs the namespaces and links of a cluster."""

from __future__ import annotations

import asyncio

from controlplane.cluster.model import BALANCER, CONTROL_PLANE, Cluster
from controlplane.cluster.plan import node_files
from controlplane.cluster.plan.wiring import wiring
from controlplane.cluster.work import host_changes
from controlplane.machine.edge import namespaces
from controlplane.machine.edge.netlink import Netlink
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
            holder = units.any_pid(cluster.unit_dir(node.name))
            group.create_task(
                namespaces.make(node_files.namespaces(cluster, node, holder), project), name=f"namespaces {node.name}"
            )
        preload = group.create_task(asyncio.to_thread(_import_netlink), name="import netlink")
    await preload
    made = await asyncio.to_thread(_wire, cluster)
    if cluster.options.uplink:
        await host_changes.ensure_uplink(cluster)
    return made


def _import_netlink() -> None:
    import pyroute2  # noqa: F401


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
    """Namespaces of a unit's programs: the control plane is in the first node's network, with the host's file tree."""
    if unit == BALANCER:
        return [("net", cluster.namespace(WIRE, "net"))]
    if unit == CONTROL_PLANE:
        return [("net", cluster.namespace(cluster.nodes[0].name, "net"))]
    return [(kind, cluster.namespace(unit, kind)) for kind in ("net", "uts", "mnt")]
