"""All clusters of this machine in brief: whether they run, since when they exist, and what they cost."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import CONTROL_PLANE, PORTS, Cluster, Options
from controlplane.cluster.plan.readiness import is_ready
from controlplane.machine.edge import cgroups
from controlplane.machine.edge.locks import is_held
from controlplane.supervisor.edge import units
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.listing import listed
from nodelib.text import one_line

RUNNING, STOPPED, BROKEN, BUSY = "running", "stopped", "broken", "busy"
_ASK_SECONDS = 3.0
_HELD = ("RssAnon:", "RssShmem:")  # not the files that processes map, which they share


@dataclass(frozen=True, slots=True)
class Overview:
    """One cluster. Sizes in bytes, `created` since the epoch.

    `problem`: what is wrong with one that is broken, or who is at work on one that is busy.
    """

    name: str
    state: str
    problem: str
    nodes: int
    ready: int  # as kubectl says it, cordoned or not
    version: str  # of the API server, as far as known
    created: float
    processes: int
    memory: int
    context: str
    subnet: str


async def read_all() -> list[Overview]:
    """Every cluster, by name. What does not answer is part of the result."""
    return list(await asyncio.gather(*map(_read, state.clusters())))


async def _read(name: str) -> Overview:
    known = state.load_readable(name)
    cluster = known or Cluster(name, "", Options(nodes=0), root=state_root())
    pids = await asyncio.to_thread(cgroups.members, cgroups.hierarchies(), cluster.cgroup)
    ready, version, problem = 0, "", ""
    if known is None:
        problem = f"its record cannot be read: {ours(name, 'down')} removes it"
    elif pids:
        ready, version, problem = await _living(known)
    busy = is_held(cluster.dir)
    if busy:
        problem = "`up`, `start`, `stop` or `down` is at work on it"
    return Overview(
        name=name,
        state=BUSY if busy else BROKEN if problem else RUNNING if pids else STOPPED,
        problem=problem,
        nodes=len(known.nodes) if known else 0,
        ready=ready,
        version=version,
        created=_created(cluster),
        processes=len(pids),
        memory=sum(map(_held, pids)),
        context=cluster.context,
        subnet=cluster.subnet,
    )


async def _living(cluster: Cluster) -> tuple[int, str, str]:
    """Ready nodes, version, and what is wrong."""
    ports = (PORTS,) if cluster.options.custom.ports else ()
    wanted = [*(() if cluster.options.kubeadm else (CONTROL_PLANE,)), *ports, *(node.name for node in cluster.nodes)]
    lost = [unit for unit in wanted if not units.supervisor_pid(cluster.unit_dir(unit))]
    mends = f"{ours(cluster.name, 'up')} mends it"
    try:
        nodes, version = await _ask(cluster)
    except NodewrightError as error:
        return 0, "", f"the API server does not answer ({one_line(error.message, 200)}): {mends}"
    by_name = {item["metadata"]["name"]: item for item in nodes}
    ready = sum(is_ready(by_name.get(node.name)) for node in cluster.nodes)
    if lost:
        return ready, version, f"nothing keeps {', '.join(lost)} running: {mends}"
    return ready, version, ""


async def _ask(cluster: Cluster) -> tuple[Sequence[Json], str]:
    access = load_kubeconfig(cluster.admin_kubeconfig)
    async with KubeClient(access, user_agent="nodewright-clusters", timeout=_ASK_SECONDS) as client:
        nodes, version = await asyncio.gather(listed(client, "/api/v1/nodes"), client.get("/version"))
        return nodes.items, str(version.get("gitVersion", ""))


def _created(cluster: Cluster) -> float:
    """Since when it exists: the files that are written once, when a node is made, and never again. 0: unknown."""
    found = glob.glob(f"{glob.escape(cluster.dir)}/*/machine-id")
    return min((os.lstat(path).st_mtime for path in found), default=0)


def _held(pid: int) -> int:
    """Bytes of memory that a process has for itself or in memory files; 0 for one that has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(_HELD))
    except OSError:
        return 0
