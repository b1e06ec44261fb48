"""Starts etcd, the API server, the controller manager and the scheduler, in the order that they need."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.cluster.model import BALANCER, CONTROL_PLANE, Cluster
from controlplane.cluster.plan import components
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.network import unit_namespaces
from controlplane.machine.edge import cgroups
from controlplane.supervisor.edge import units
from controlplane.supervisor.model import Program
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.kube.client import KubeClient

_POLL = 0.03  # seconds between looks at a server that is starting
_GIVE_UP_AFTER = 4  # starts of a program that keeps ending


def start_unit(cluster: Cluster, unit: str, programs: tuple[Program, ...], project: str) -> None:
    """Have the unit's supervisor run `programs`; what runs already as it should is left alone."""
    directories = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/{unit}{_leaf(unit)}")
    units.write_spec(
        cluster.unit_dir(unit), cgroups=directories, namespaces=unit_namespaces(cluster, unit), programs=programs
    )
    units.ensure_supervisor(cluster.unit_dir(unit), f"{cluster.log_dir(unit)}/supervisor.log", project)


def _leaf(unit: str) -> str:
    # On v2 a cgroup with controllers for its children may not hold processes: a node's pods are its siblings.
    return "" if unit in (CONTROL_PLANE, BALANCER) else "/system"


async def start_storage(cluster: Cluster, tools: Tools) -> None:
    """Start etcd and the API server (and, when they run already, keep the controllers in the same list)."""
    running = set(units.programs(cluster.unit_dir(CONTROL_PLANE)))
    programs = components.storage(cluster, tools)
    if "kube-scheduler" in running:
        programs += components.controllers(cluster, tools)
    start_unit(cluster, CONTROL_PLANE, programs, tools.project)


async def wait_ready(cluster: Cluster, client: KubeClient, clock: Clock, *, timeout: float = 90) -> None:
    """Until the API server says so on /readyz. Raises Temporary with the log's last words when it cannot start."""

    before = starts(cluster, CONTROL_PLANE)

    async def waits_for() -> str:
        try:
            await client.get("/readyz")
        except NodewrightError as error:
            fail_if_ending(cluster, CONTROL_PLANE, before)
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
    """How often each program of the unit has been started so far."""
    return {name: int(row["starts"]) for name, row in units.programs(cluster.unit_dir(unit)).items()}


def fail_if_ending(cluster: Cluster, unit: str, before: Mapping[str, int]) -> None:
    """Raises Temporary when a program of the unit keeps ending: its log says why, waiting does not help.

    `before` is starts() from when the waiting began: what ended earlier may have been mended since.
    """
    for name, row in units.programs(cluster.unit_dir(unit)).items():
        if not row["alive"] and int(row["starts"]) - before.get(name, 0) >= _GIVE_UP_AFTER:
            log = f"{cluster.log_dir(unit)}/{name}.log"
            raise Temporary(
                f"ended {row['starts']} times ({row['last_exit']}); its last words: {units.tail(log, 3)}",
                obj=f"{unit}/{name}",
                step="start",
                action=f"Its whole log: {log}",
            )


async def start_controllers(cluster: Cluster, tools: Tools) -> None:
    """Start the controller manager and the scheduler; call with a ready API server."""
    programs = components.storage(cluster, tools) + components.controllers(cluster, tools)
    start_unit(cluster, CONTROL_PLANE, programs, tools.project)
