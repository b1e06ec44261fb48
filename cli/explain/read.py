"""Reads what explanations need: objects from the API server, rules and routes from the kernels of the nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.explain.facts import Facts
from cli.explain.listening import Listening
from cli.explain.places import Sender, Target
from cli.explain.walk import Machine, Path, Rules, nftables_of
from cli.explain.walk import paths as walk
from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import cgroups, listeners
from controlplane.machine.edge import fib as routes
from controlplane.machine.edge import namespaces as spaces
from controlplane.machine.edge import rules as edge
from controlplane.machine.edge.netlink import Netlink
from controlplane.machine.model import HOST, Listener
from controlplane.supervisor.edge import units
from loadbalancer.model import NAMESPACE
from nodelib.errors import NotFound
from nodelib.firewall.trace import MOST_WAYS
from nodelib.firewall.trace_model import Fib
from nodelib.kube.access import load_kubeconfig

if TYPE_CHECKING:
    from nodelib.kube.client import KubeClient

Kernels = asyncio.Future[list[edge.Kernel]]
_LISTS = (
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/api/v1/pods",
    "/api/v1/nodes",
    "/apis/networking.k8s.io/v1/networkpolicies",
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
)


async def facts(cluster: Cluster) -> Facts:
    """The objects that the API server has now. Raises ApiUnreachable, ApiError."""
    async with await asyncio.to_thread(_client, cluster) as client:
        from nodelib.kube.listing import listed

        found = await asyncio.gather(*(listed(client, path) for path in _LISTS))
    known = Facts.of(*(one.items for one in found), cluster=cluster.name)
    return replace(known, enforced=cluster.options.enforces_policies)


def _client(cluster: Cluster) -> KubeClient:
    # The client takes as long to import as the kernels take to answer, so the two are done at the same time.
    from cli import quick_aiohttp  # noqa: F401
    from nodelib.kube.client import KubeClient

    return KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-trace", timeout=10)


def kernels(cluster: Cluster, nodes: Iterable[str], version: int) -> Kernels:
    """Begin to read the rules of these nodes; their errors are raised where they are awaited."""
    return asyncio.gather(*(kernel(cluster, node, version) for node in nodes))


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
            action=f"Repair it with {ours(cluster.name, 'up')}; for a joined node, use its own machine.",
        )
    return await edge.read(node, net, version)


def listening(cluster: Cluster, known: Facts) -> Listening:
    """Who listens at an address: at its pod, at its node, or at this machine; each namespace is read once."""
    processes: dict[str, dict[str, int]] = {}
    found: dict[int, tuple[Listener, ...] | None] = {}

    def pid_of(address: str) -> int:
        pod, node = known.pod_at(address), known.node_of(address)
        if pod is None:
            return os.getpid() if address in cluster.host_addresses else _process_of_node(cluster, node)
        if node not in processes:
            processes[node] = listeners.pod_processes(cgroups.hierarchies(), f"{cluster.cgroup}/{node}")
        meta = pod["metadata"]
        # A static pod's cgroup has the UID of its manifest.
        own = (meta.get("annotations") or {}).get("kubernetes.io/config.hash") or meta.get("uid")
        return processes[node].get(str(own), 0)

    def ask(address: str) -> tuple[Listener, ...] | None:
        pid = pid_of(address)
        if pid not in found:
            found[pid] = listeners.of_process(pid) if pid else None
        return found[pid]

    return ask


def _process_of_node(cluster: Cluster, node: str) -> int:
    """A process in the network namespace of the node itself, 0 if there is none here."""
    if node not in [one.name for one in cluster.nodes]:
        return 0
    alive = [row for row in units.programs(cluster.unit_dir(node)).values() if row.get("alive")]
    return int(alive[0]["pid"]) if alive else 0


async def paths(
    cluster: Cluster, sender: Sender, to: Target, known: Facts, begun: Mapping[int, Kernels]
) -> tuple[list[Path], list[str]]:
    """The packet's paths by the rules and routes that the nodes on this machine have now, and notes on the rules.

    `begun`: readings by IP version that are under way; another version is read now.
    """
    version = 6 if ":" in to.address else 4
    found = await (begun.get(version) or kernels(cluster, [node.name for node in cluster.nodes], version))
    walked = await asyncio.to_thread(_walked, cluster, found, version, sender, to, known)
    notes = [f"{one.node}: {note}" for one in found for note in one.notes]
    if len(walked) >= MOST_WAYS:
        notes.append(f"There may be more possible paths: only the first {MOST_WAYS} are followed.")
    return walked, notes


def _walked(
    cluster: Cluster, read: Sequence[edge.Kernel], version: int, sender: Sender, to: Target, known: Facts
) -> list[Path]:
    with Netlink(lambda space: cluster.namespace(space, "net") if space else None) as netlink:

        def fib(space: str) -> Fib:
            return lambda packet: routes.ask(netlink, space, packet)

        rules = {
            one.node: Rules(
                one.node, one.tables, nftables_of(one.nftables, version), one.addresses, one.links, fib(one.node)
            )
            for one in read
        }
        gateways = (*cluster.host_addresses, *(cluster.router_addresses if cluster.options.routed else ()))
        machine = Machine(cluster.host_addresses, gateways, cluster.host_link, fib(HOST))
        return walk(sender, to, rules, known, machine, listening(cluster, known))
