"""Reads what explanations need: objects from the API server, rules and routes from the kernels of the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cli.explain.facts import Facts
from cli.explain.places import Sender, Target
from cli.explain.walk import Machine, Path, Rules, nftables_of
from cli.explain.walk import paths as walk
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import fib as routes
from controlplane.machine.edge import namespaces as spaces
from controlplane.machine.edge import rules as edge
from controlplane.machine.edge.netlink import Netlink
from controlplane.machine.model import HOST
from nodelib.errors import NotFound
from nodelib.firewall.trace_model import Fib
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_LISTS = (
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/api/v1/pods",
    "/api/v1/nodes",
    "/apis/networking.k8s.io/v1/networkpolicies",
)


async def facts(cluster: Cluster) -> Facts:
    """The objects that the API server has now. Raises ApiUnreachable, ApiError."""
    client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-trace", timeout=10)
    try:
        lists: list[list[Json]] = [
            answer["items"] for answer in await asyncio.gather(*(client.get(path) for path in _LISTS))
        ]
    finally:
        await client.close()
    return Facts.of(*lists)


async def kernel(cluster: Cluster, node: str, version: int) -> edge.Kernel:
    """The rules of one node. Raises NotFound for an unknown node or one whose network namespace is gone."""
    if node not in (names := [one.name for one in cluster.nodes]):
        raise NotFound("no such node in the cluster", obj=node, action=f"There are: {', '.join(names)}.")
    net = cluster.namespace(node, "net")
    if not spaces.is_bound(net):
        raise NotFound(
            "has no network namespace on this machine",
            obj=f"node {node}",
            step="read its rules",
            action=f"Repair it with `./nodewright up --name {cluster.name}`; for a joined node, use its own machine.",
        )
    return await edge.read(node, net, version)


async def paths(cluster: Cluster, come: Sender, to: Target, known: Facts) -> tuple[list[Path], list[str]]:
    """The packet's paths by the rules and routes that the nodes on this machine have now, and notes on the rules."""
    version = 6 if ":" in to.address else 4
    kernels = await asyncio.gather(*(kernel(cluster, node.name, version) for node in cluster.nodes))
    found = await asyncio.to_thread(_walked, cluster, kernels, version, come, to, known)
    return found, [f"{one.node}: {note}" for one in kernels for note in one.notes]


def _walked(
    cluster: Cluster, kernels: Sequence[edge.Kernel], version: int, come: Sender, to: Target, known: Facts
) -> list[Path]:
    with Netlink(lambda space: cluster.namespace(space, "net") if space else None) as netlink:

        def fib(space: str) -> Fib:
            return lambda packet: routes.ask(netlink, space, packet)

        rules = {
            one.node: Rules(
                one.node, one.tables, nftables_of(one.nftables, version), one.addresses, one.links, fib(one.node)
            )
            for one in kernels
        }
        gateways = (*cluster.host_addresses, *(cluster.router_addresses if cluster.options.routed else ()))
        machine = Machine(cluster.host_addresses, gateways, cluster.host_link, fib(HOST))
        return walk(come, to, rules, known, machine)
