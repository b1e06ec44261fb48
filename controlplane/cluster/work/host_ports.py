"""Ports of this machine that lead to nodes: a unit of the cluster which listens to them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterable

from controlplane.cluster.model import PORTS, Cluster
from controlplane.cluster.plan import components
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.control_plane import fail_if_exiting, start_unit, starts
from controlplane.config.model import Port
from controlplane.machine.edge import cgroups
from controlplane.supervisor.edge import units
from controlplane.waiting import until
from nodelib import file_trees
from nodelib.clock import Clock
from nodelib.errors import Invalid


async def ensure(cluster: Cluster, tools: Tools, clock: Clock) -> str:
    """Listen to the cluster's ports, or stop listening when it has none any more. Returns a summary of one line."""
    ports = cluster.options.custom.ports
    if not ports:
        _remove(cluster)
        return "none"
    await asyncio.to_thread(start_unit, cluster, PORTS, (components.ports(cluster, tools),), tools.project)
    before = starts(cluster, PORTS)

    async def waits_for() -> str:
        fail_if_exiting(cluster, PORTS, before)
        silent = [f"{port.listen}:{port.host_port}" for port in ports if not _listens(port)]
        return f"nobody listens to {', '.join(silent)}" if silent else ""

    await until(
        waits_for,
        clock,
        20,
        obj=f"ports of {cluster.name}",
        step="listen",
        action=f"Its log: {cluster.log_dir(PORTS)}/ports.log",
        pause=0.03,
    )
    return ", ".join(f"{port.listen}:{port.host_port}" for port in ports)


def there(cluster: Cluster) -> bool:
    """Whether an earlier `up` made the cluster listen to ports."""
    return os.path.isdir(cluster.unit_dir(PORTS))


def _remove(cluster: Cluster) -> None:
    folder = cluster.unit_dir(PORTS)
    if not there(cluster):
        return
    units.kill_supervisor(folder)
    trees, own = cgroups.hierarchies(), f"{cluster.cgroup}/{PORTS}"
    cgroups.kill_all(trees, own)
    cgroups.remove(trees, own)
    file_trees.remove(os.path.dirname(folder))


def check_free(cluster: Cluster, known: Iterable[Port]) -> None:
    """Raises Invalid when another program listens to a port that the cluster does not have yet."""
    ours = {(one.listen, one.host_port) for one in known}
    for number, port in enumerate(cluster.options.custom.ports):
        if (port.listen, port.host_port) in ours:
            continue
        if reason := _bind(port):
            raise Invalid(
                f"{port.listen}:{port.host_port} {reason}",
                obj=f"ports[{number}].hostPort",
                step="check the ports (nothing was changed)",
                action=f"Give another hostPort, or see who has it: `ss -tlnp sport = :{port.host_port}`.",
            )


def _family(port: Port) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in port.listen else socket.AF_INET


def _bind(port: Port) -> str:
    with socket.socket(_family(port)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((port.listen, port.host_port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "is used by another program"
            return f"cannot be listened to: {error.strerror}"
    return ""


def _listens(port: Port) -> bool:
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(port.listen, port.listen)
    with socket.socket(_family(port)) as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port.host_port)) == 0
