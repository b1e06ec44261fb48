"""Gathers what explanations need: objects from the API server, rules from the kernels of the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from cli.explain.facts import Facts, Json
from cli.explain.walk import Rules, nftables_of
from controlplane.edge import rules as edge
from controlplane.edge import spaces
from controlplane.model import Cluster
from nodelib.errors import NotFound
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
    """As the API server has them now. Raises ApiUnreachable, ApiError."""
    client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-trace", timeout=10)
    try:
        lists: list[list[Json]] = [
            answer["items"] for answer in await asyncio.gather(*(client.get(path) for path in _LISTS))
        ]
    finally:
        await client.close()
    return Facts.of(*lists)


async def kernel(cluster: Cluster, node: str, version: int) -> edge.Kernel:
    """The rules of one node. Raises NotFound when its namespace is gone."""
    if node not in (names := [one.name for one in cluster.nodes]):
        raise NotFound("no such node in the cluster", obj=node, action=f"There are: {', '.join(names)}.")
    net = cluster.namespace(node, "net")
    if not spaces.is_bound(net):
        raise NotFound(
            "has no network namespace on this machine",
            obj=f"node {node}",
            step="read its rules",
            action=f"`./nodewright up --name {cluster.name}` mends it; a joined node must be asked on its own machine.",
        )
    return await edge.read(node, net, version)


async def rules(cluster: Cluster, version: int, nodes: Iterable[str] = ()) -> tuple[dict[str, Rules], list[str]]:
    """Of all nodes of this machine; and what must be said about them."""
    names = list(nodes) or [node.name for node in cluster.nodes]
    kernels = await asyncio.gather(*(kernel(cluster, name, version) for name in names))
    found = {
        one.node: Rules(one.node, one.tables, nftables_of(one.nftables, version), one.addresses) for one in kernels
    }
    return found, [f"{one.node}: {note}" for one in kernels for note in one.notes]
