"""Starts etcd, the API server, the controller manager and the scheduler in the order they need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from controlplane.cluster.model import CONTROL_PLANE, OUTSIDE, Cluster
from controlplane.cluster.plan import components, scheduler
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.node_files import RUNTIME_SNAPSHOTS
from controlplane.cluster.work.network import unit_namespaces
from controlplane.machine.edge import cgroups, files
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.kube.client import KubeClient

_POLL = 0.03  # seconds between requests to a server that is starting
_GIVE_UP_AFTER = 4  # starts of a program that keeps exiting


def start_unit(cluster: Cluster, unit: str, programs: tuple[Program, ...], project: str) -> None:
    """Let the unit's supervisor run `programs`; those that run already and have not changed are left alone.

    It blocks until the supervisor runs: coroutines call it in a thread, or nobody would hear Ctrl-C.
    """
    directories = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/{unit}{_leaf(unit)}")
    outside = unit in OUTSIDE  # process 1 of a node starts the supervisor in its place already
    units.write_spec(
        cluster.unit_dir(unit),
        cgroups=directories if outside else (),
        namespaces=unit_namespaces(cluster, unit) if outside else (),
        programs=programs,
        snapshots="" if outside else RUNTIME_SNAPSHOTS,
    )
    units.ensure_supervisor(cluster.unit_dir(unit), f"{cluster.log_dir(unit)}/supervisor.log", project)


def _leaf(unit: str) -> str:
    # On v2 a cgroup with controllers for its children may not have processes, so a node's pods are in sibling cgroups.
    return "" if unit in OUTSIDE else "/system"


async def start_storage(cluster: Cluster, tools: Tools, clock: Clock) -> None:
    """Start etcd and the API server; controllers that are running already stay in the list.

    An API server that runs with other flags has ended when this returns: it would still say that it is ready, and not
    answer what is sent to it next.
    """
    folder = cluster.unit_dir(CONTROL_PLANE)
    running = units.programs(folder)
    begun = "kube-scheduler" in running
    programs = components.programs(cluster, CONTROL_PLANE, tools) if begun else components.storage(cluster, tools)
    server = running.get("kube-apiserver")
    flags = next(list(one.argv) for one in programs if one.name == "kube-apiserver")
    other = bool(server and server["alive"]) and units.arguments(folder, "kube-apiserver") != flags
    await asyncio.to_thread(start_unit, cluster, CONTROL_PLANE, programs, tools.project)
    if not other:
        return

    async def waits_for() -> str:
        again = starts(cluster, CONTROL_PLANE).get("kube-apiserver", 0) > int(server["starts"]) if server else True
        return "" if again else "the old one still runs"

    await until(
        waits_for,
        clock,
        60,
        obj=f"API server {cluster.api_url}",
        step="restart, for its new flags",
        action=f"Its log: {cluster.log_dir(CONTROL_PLANE)}/kube-apiserver.log",
        pause=_POLL,
    )


async def wait_ready(cluster: Cluster, client: KubeClient, clock: Clock, *, timeout: float = 90) -> None:
    """Wait until /readyz of the API server succeeds. Raises Temporary with the end of its log when it cannot start."""

    before = starts(cluster, CONTROL_PLANE)

    async def waits_for() -> str:
        try:
            await client.get("/readyz")
        except NodewrightError as error:
            fail_if_exiting(cluster, CONTROL_PLANE, before)
            return f"not ready: {error.message}"
        return ""

    await until(
        waits_for,
        clock,
        timeout,
        obj=f"API server {cluster.api_url}",
        step="wait for /readyz",
        action=f"Its log: {cluster.log_dir(CONTROL_PLANE)}/kube-apiserver.log",
        pause=_POLL,
    )


def starts(cluster: Cluster, unit: str) -> dict[str, int]:
    """How often each program of the unit has been started."""
    return {name: int(row["starts"]) for name, row in units.programs(cluster.unit_dir(unit)).items()}


def fail_if_exiting(cluster: Cluster, unit: str, before: Mapping[str, int]) -> None:
    """Raises Temporary when a program of the unit keeps exiting: waiting does not help, and its log says why.

    `before` is starts() from the beginning of the wait, as the cause of earlier exits may have been fixed since.
    """
    for name, row in units.programs(cluster.unit_dir(unit)).items():
        if not row["alive"] and int(row["starts"]) - before.get(name, 0) >= _GIVE_UP_AFTER:
            log = f"{cluster.log_dir(unit)}/{name}.log"
            raise Temporary(
                f"exited {row['starts']} times ({row['last_exit']}); the end of its log: {units.tail(log, 3)}",
                obj=f"{unit}/{name}",
                step="start",
                action=f"See its log: {log}",
            )


async def start_controllers(cluster: Cluster, tools: Tools) -> None:
    """Start the controller manager and the scheduler; the API server must be ready."""
    if scheduler.is_timed(cluster):
        document = json.dumps(scheduler.config(cluster), indent=1)
        files.write_if_changed(scheduler.config_path(cluster), document)
    programs = components.programs(cluster, CONTROL_PLANE, tools)
    await asyncio.to_thread(start_unit, cluster, CONTROL_PLANE, programs, tools.project)
