"""Removes one node of a living cluster: its pods first, then its Node, then the machine that it is.

The record is written last: after an interruption the node is still in it, so that `node remove` goes on and `up` would
make the node again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import removal
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work import drain, host_ports, nodes, volume_devices
from controlplane.machine.edge import cgroups, namespaces, process_one
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.netlink import Netlink
from controlplane.machine.model import WIRE
from controlplane.progress import Progress, Say
from controlplane.supervisor.edge import units
from nodelib import file_trees
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, NotFound, Temporary
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient


@dataclass(frozen=True, slots=True)
class Order:
    """Which node goes, how long its pods may take, and whether it goes in any case."""

    cluster: str
    node: str
    limit: float = 60.0
    force: bool = False


async def remove(order: Order, tools: Tools, progress: Progress, clock: Clock) -> Cluster:
    """Remove the node and return the cluster that is left. Raises NodewrightError; what is left can be tried again."""
    cluster = _known(order.cluster)
    removal.check_removable(cluster, order.node)
    with directory_lock(cluster.dir, make=False):
        cluster = _known(order.cluster)
        removal.check_removable(cluster, order.node)
        node = next(one for one in cluster.nodes if one.name == order.node)
        async with _client(cluster) as client:
            with _api_needed(order), progress.step(f"{node.name}: pods") as say:
                if await _exists(client, node.name):
                    await _drained(order, client, clock, say)
            with progress.step(f"{node.name}: machine, links and files"):
                await asyncio.to_thread(remove_machine, cluster, node)
            # Only now: an agent that runs registers its Node again.
            with _api_needed(order), progress.step(f"{node.name}: Node") as say:
                await _delete_node(client, node.name)
                say(f"deleted; {await drain.delete_left(client, node.name)} pods went with it")
        left = removal.without(cluster, node.name)
        state.save(left)
        with progress.step("the other nodes"):
            for other in left.nodes:
                await asyncio.to_thread(nodes.write_files, left, other)
            if host_ports.there(left):
                await host_ports.ensure(left, tools, clock)
    return left


def _known(name: str) -> Cluster:
    cluster = state.load(name)
    if cluster is None:
        raise NotFound("no such cluster on this machine", obj=name, action="`./nodewright up` creates one.")
    return cluster


def _client(cluster: Cluster) -> KubeClient:
    return KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-node", timeout=10)


@contextmanager
def _api_needed(order: Order) -> Iterator[None]:
    """Without an API server the block is left out if the node goes by force; otherwise that is an error."""
    try:
        yield
    except ApiUnreachable as error:
        if not order.force:
            raise Temporary(
                error.message,
                obj=f"API server of {order.cluster}",
                step=f"remove {order.node}",
                action=f"{ours(order.cluster, 'up')} repairs it; --force removes the node without it.",
            ) from error


async def _drained(order: Order, client: KubeClient, clock: Clock, say: Say) -> None:
    await drain.cordon(client, order.node)
    try:
        await drain.drain(client, clock, order.node, order.limit, say, force=order.force)
    except NodewrightError:
        await drain.cordon(client, order.node, unschedulable=False)
        raise


async def _exists(client: KubeClient, node: str) -> bool:
    try:
        await client.get(f"/api/v1/nodes/{node}")
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True


async def _delete_node(client: KubeClient, node: str) -> None:
    try:
        await client.delete(f"/api/v1/nodes/{node}")
    except ApiError as error:
        if error.code != 404:
            raise


def remove_machine(cluster: Cluster, node: Node) -> None:
    """End everything that runs in a node, and remove its namespaces, link, mounts, cgroup and files."""
    trees, group = cgroups.hierarchies(), f"{cluster.cgroup}/{node.name}"
    process_one.kill(units.machine_lock(cluster.unit_dir(node.name)))  # the kernel ends a node with its process 1
    cgroups.kill_all(trees, group)
    with Netlink(lambda space: cluster.namespace(WIRE, "net")) as netlink:
        netlink.delete_link(node.name, WIRE)
    for path in cluster.namespaces(node.name).values():
        namespaces.unmount_below(path)
        if os.path.exists(path):
            os.unlink(path)
    namespaces.unmount_below(cluster.node_dir(node.name))
    volume_devices.detach(cluster.node_dir(node.name))
    cgroups.remove(trees, group)
    if os.path.isdir(cluster.node_dir(node.name)):
        file_trees.remove(cluster.node_dir(node.name))
