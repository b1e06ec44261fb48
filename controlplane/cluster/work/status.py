"""What a cluster is doing, from its API server and from this machine; either may be unavailable."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.cluster.edge import ask
from controlplane.cluster.model import CONTROL_PLANE, PORTS, Cluster, Node
from controlplane.cluster.plan import components
from controlplane.cluster.plan.podless import WORKLOADS, Podless, podless
from controlplane.cluster.plan.readiness import (
    NodeState,
    Pod,
    ProxyState,
    node_state,
    node_versions,
    pod_facts,
    proxy_state,
    serving_waits_for,
    settings,
    skews,
    unexpected_conditions,
)
from controlplane.machine.edge import namespaces
from controlplane.supervisor.edge import units
from nodelib import file_trees
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig

if TYPE_CHECKING:
    from nodelib.kube.client import KubeClient

_PROXY_HEALTH = 10256
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"  # what is read of the API server


@dataclass(frozen=True, slots=True)
class Daemon:
    """A supervised program. `starts`: 0 for one that should run and was never started."""

    unit: str
    name: str
    alive: bool
    pid: int
    starts: int
    last_exit: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node according to the API server, and its proxy according to its health check."""

    name: str
    address: str
    state: str  # in a word or two
    waits_for: str  # "" when Ready and schedulable
    pods: int
    proxy: str
    proxy_state: str  # in a word or two
    proxy_problem: str  # "" when it is well
    proxy_synced: str  # when it last changed the rules, as RFC 3339; "" unknown
    certificate: str = ""  # what its serving certificate waits for
    feels: str = ""  # conditions other than Ready that are not as they should be
    version: str = ""  # of its kubelet
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a cluster; `api` is "" when the API server answers, else why it does not."""

    name: str
    subnet: str
    api_url: str
    api: str
    supervisors: dict[str, int]
    missing: tuple[str, ...]
    daemons: tuple[Daemon, ...]
    nodes: tuple[NodeStatus, ...]
    settings: dict[str, str]  # the options it was raised with
    version: str  # of the API server, "" unknown
    skew: tuple[str, ...]  # how the nodes violate upstream's version skew policy
    certificates: str  # the first one that expires, and when
    logs: str  # a pattern for their paths
    pods: tuple[Pod, ...] = ()
    podless: tuple[Podless, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What the API server has of a cluster; `problem` says why it does not answer, "" when it does."""

    problem: str = ""
    nodes: tuple[Json, ...] = ()
    pods: tuple[Pod, ...] = ()
    version: str = ""
    podless: tuple[Podless, ...] = ()


async def read_status(cluster: Cluster) -> Status:
    """Read the status. Never raises because something is down: that is part of the status."""
    api, proxies = await asyncio.gather(_ask_api(cluster), ask_proxies(cluster))
    return await seen(cluster, api, proxies)


async def ask_proxies(cluster: Cluster) -> tuple[ProxyState, ...]:
    """What the health check of each node's proxy says, in the order of the nodes. A process is started for each."""
    return tuple(await asyncio.gather(*(_proxy(cluster, node.name) for node in cluster.nodes)))


async def seen(cluster: Cluster, api: ApiAnswer, proxies: Sequence[ProxyState]) -> Status:
    """The status, of these answers and of what this machine's files say of the daemons."""
    by_pods = cluster.options.kubeadm  # the control plane has no unit, as it runs in pods
    outside = (*(() if by_pods else (CONTROL_PLANE,)), *((PORTS,) if cluster.options.custom.ports else ()))
    unit_names = [*outside, *(node.name for node in cluster.nodes)]
    certificates = await asyncio.to_thread(_first_to_expire, cluster)
    by_name = {item["metadata"]["name"]: item for item in api.nodes}
    pods = Counter(pod.node for pod in api.pods)
    nodes = tuple(
        _node(cluster, node, None if api.problem else by_name.get(node.name, {}), pods[node.name], proxy)
        for node, proxy in zip(cluster.nodes, proxies, strict=True)
    )
    return Status(
        name=cluster.name,
        subnet=cluster.subnet,
        api_url=cluster.api_url,
        api=api.problem,
        supervisors={unit: units.supervisor_pid(cluster.unit_dir(unit)) for unit in unit_names},
        missing=_missing(cluster),
        daemons=tuple(daemon for unit in unit_names for daemon in _daemons(cluster, unit)),
        nodes=nodes,
        settings=settings(cluster.options),
        version=api.version,
        skew=skews((node.version for node in nodes), api.version),
        certificates=certificates,
        logs=f"{cluster.log_dir('UNIT')}/DAEMON.log",
        pods=api.pods,
        podless=api.podless,
    )


def _node(cluster: Cluster, node: Node, obj: dict[str, Any] | None, pods: int, proxy: ProxyState) -> NodeStatus:
    """`obj`: None when the API server does not answer, {} when it has no such Node."""
    if obj is None:
        state = NodeState("unknown", "unknown: no answer from the API server")
    else:
        state = node_state(obj or None, given=cluster.member(node.name).taints)
    return NodeStatus(
        name=node.name,
        address=node.address,
        state=state.word,
        waits_for=state.waits_for,
        pods=pods,
        proxy=proxy.text,
        proxy_state=proxy.word,
        proxy_problem=proxy.problem,
        proxy_synced=proxy.synced,
        certificate=serving_waits_for(obj),
        feels=unexpected_conditions(obj),
        **node_versions(obj),
    )


def _daemons(cluster: Cluster, unit: str) -> list[Daemon]:
    rows = units.programs(cluster.unit_dir(unit))
    # `up` tells a supervisor of some programs only when others are ready: one that was interrupted never came to them.
    meant = () if cluster.options.kubeadm else components.program_names(cluster, unit)
    never = [Daemon(unit, name, alive=False, pid=0, starts=0, last_exit="") for name in meant if name not in rows]
    begun = [
        Daemon(
            unit,
            name,
            bool(row["alive"]),
            int(row["pid"]),
            int(row["starts"]),
            str(row["last_exit"]),
        )
        for name, row in rows.items()
    ]
    return begun + never


def _missing(cluster: Cluster) -> tuple[str, ...]:
    points = set(namespaces.mount_points())
    paths = [cluster.namespace("wire", "net")]
    paths += [path for node in cluster.nodes for path in cluster.namespaces(node.name).values()]
    return tuple(path for path in paths if path not in points)


def _first_to_expire(cluster: Cluster) -> str:
    """The first to expire of the cluster's certificates and those given to nodes, which renew their own."""
    from controlplane.cluster.work.pki import expiry

    folders = (cluster.pki_dir, *(f"{cluster.node_dir(node.name)}/kubernetes/pki" for node in cluster.nodes))
    paths = [path for folder in folders for path in file_trees.named(folder, ".crt")]
    found = [(end, path) for path in paths if (end := expiry(path))]
    if not found:
        return ""
    end, path = min(found)
    return f"{os.path.relpath(path, cluster.dir)} ends on {end:%Y-%m-%d}"


async def _ask_api(cluster: Cluster) -> ApiAnswer:
    try:
        client = await asyncio.to_thread(_client, cluster)
    except NodewrightError as error:
        return ApiAnswer(str(error))
    try:
        from nodelib.kube.listing import listed

        async with client:
            nodes, pods, version, workloads = await asyncio.gather(
                listed(client, NODES),
                listed(client, PODS),
                client.get("/version"),
                asyncio.gather(*(listed(client, path) for path in WORKLOADS.values())),
            )
        facts = tuple(pod_facts(item) for item in pods.items)
        without = podless({kind: found.items for kind, found in zip(WORKLOADS, workloads, strict=True)})
        return ApiAnswer("", nodes.items, facts, str(version.get("gitVersion", "")), without)
    except NodewrightError as error:
        return ApiAnswer(error.message)


def _client(cluster: Cluster) -> KubeClient:
    # Imported while the proxies are being asked.
    from nodelib.kube.client import KubeClient

    return KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-status", timeout=3)


async def _proxy(cluster: Cluster, node: str) -> ProxyState:
    net = cluster.namespace(node, "net")
    if not namespaces.is_bound(net):
        return ProxyState("down", "is down: the node's network namespace is gone")
    loopback = "127.0.0.1" if 4 in cluster.families else "::1"
    found = await ask.ask(loopback, _PROXY_HEALTH, "/healthz", net=net, times=1, seconds=2)
    return proxy_state(found.bodies, found.error)
