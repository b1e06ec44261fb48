"""What a cluster is doing, from its API server and from this machine; either may be gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from controlplane.edge import ask, spaces, units
from controlplane.model import CONTROL_PLANE, Cluster
from controlplane.plan.readiness import Pod, node_waits_for, pod_facts, serving_waits_for
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_PROXY_HEALTH = 10256


@dataclass(frozen=True, slots=True)
class Daemon:
    """A supervised program."""

    unit: str
    name: str
    alive: bool
    pid: int
    starts: int
    last_exit: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as the API server knows it, and its proxy as it answers itself."""

    name: str
    address: str
    waits_for: str  # "" when Ready and schedulable
    pods: int
    proxy: str
    certificate: str = ""  # what its serving certificate waits for


@dataclass(frozen=True, slots=True)
class Status:
    """The whole picture; `api` is "" when the API server answers, else why not."""

    name: str
    subnet: str
    api_url: str
    api: str
    supervisors: dict[str, int]
    missing: tuple[str, ...]
    daemons: tuple[Daemon, ...]
    nodes: tuple[NodeStatus, ...]
    logs: str  # a pattern of their paths
    pods: tuple[Pod, ...] = field(default=())


async def look(cluster: Cluster) -> Status:
    """Never raises for something that is down: that is the status."""
    by_pods = cluster.options.kubeadm  # the control plane has no unit of its own: it runs in pods
    unit_names = [*(() if by_pods else (CONTROL_PLANE,)), *(node.name for node in cluster.nodes)]
    api, api_nodes, pods = await _ask_api(cluster)
    by_name = {item["metadata"]["name"]: item for item in api_nodes}
    proxies = await asyncio.gather(*(_proxy(cluster, node.name) for node in cluster.nodes))
    nodes = tuple(
        NodeStatus(
            node.name,
            node.address,
            "unknown: no answer from the API server" if api else node_waits_for(by_name.get(node.name)),
            sum(pod.node == node.name for pod in pods),
            proxy,
            serving_waits_for(by_name.get(node.name)),
        )
        for node, proxy in zip(cluster.nodes, proxies, strict=True)
    )
    return Status(
        name=cluster.name,
        subnet=cluster.subnet,
        api_url=cluster.api_url,
        api=api,
        supervisors={unit: units.supervisor_pid(cluster.unit_dir(unit)) for unit in unit_names},
        missing=_missing(cluster),
        daemons=tuple(daemon for unit in unit_names for daemon in _daemons(cluster, unit)),
        nodes=nodes,
        logs=f"{cluster.log_dir('UNIT')}/DAEMON.log",
        pods=tuple(pods),
    )


def _daemons(cluster: Cluster, unit: str) -> list[Daemon]:
    rows = units.programs(cluster.unit_dir(unit))
    return [
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


def _missing(cluster: Cluster) -> tuple[str, ...]:
    points = set(spaces.mount_points())
    paths = [cluster.namespace("wire", "net")]
    paths += [cluster.namespace(node.name, kind) for node in cluster.nodes for kind in ("net", "uts", "mnt")]
    return tuple(path for path in paths if path not in points)


async def _ask_api(cluster: Cluster) -> tuple[str, list[dict[str, Any]], list[Pod]]:
    try:
        client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-status", timeout=3)
    except NodewrightError as error:
        return str(error), [], []
    try:
        nodes, pods = await asyncio.gather(client.get("/api/v1/nodes"), client.get("/api/v1/pods"))
        return "", nodes["items"], [pod_facts(item) for item in pods["items"]]
    except NodewrightError as error:
        return error.message, [], []
    finally:
        await client.close()


async def _proxy(cluster: Cluster, node: str) -> str:
    net = cluster.namespace(node, "net")
    if not spaces.is_bound(net):
        return "namespace missing"
    loopback = "127.0.0.1" if 4 in cluster.families else "::1"
    found = await ask.ask(loopback, _PROXY_HEALTH, "/healthz", net=net, times=1, seconds=2)
    if not found.bodies:
        return f"no answer ({found.error})"
    try:
        answer = json.loads(found.bodies[0])
    except ValueError:
        return "answers"
    return f"synced {answer.get('lastUpdated', '')}".rstrip()
