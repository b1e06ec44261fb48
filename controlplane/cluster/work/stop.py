"""`stop`: ends all processes of a cluster in good order and keeps its state, for `start` or `up` to bring it back.

First the containers get SIGTERM and their time, while nothing starts them again; then the nodes end, then controllers,
API server and etcd, in this order. What is left is what a machine has after a reboot: the cluster's directory. It is
written to the disk at the end, so that whatever happens to the machine afterwards, nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

from agent.common.model.pods import RunState
from agent.runtime.edge.cri import Cri
from controlplane.cluster.model import BALANCER, CONTROL_PLANE, PORTS, Cluster, Node
from controlplane.cluster.plan import storage
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET
from controlplane.cluster.work.down import clear
from controlplane.machine.edge import disk, process_one
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.supervisor.edge import units
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.inner_sockets import reached

_ENDS_WITHIN = 30.0  # seconds, for daemons
_LIST_WITHIN = 10.0  # seconds, for a runtime that may hang


@dataclass(frozen=True, slots=True)
class Stopped:
    """How many containers were asked to end, and how many processes the cluster still had afterwards."""

    containers: int
    processes: int


async def stop(cluster: Cluster, grace: int, progress: Progress, clock: Clock) -> Stopped:
    """Stop it. `grace`: seconds that containers have after SIGTERM. Raises NodewrightError; then run it again."""
    with directory_lock(cluster.dir, make=False):
        with progress.step("containers") as say:
            counts = await asyncio.gather(*(_quiet(cluster, node, grace, clock) for node in cluster.nodes))
            say(f"{sum(counts)} ended")
        with progress.step("nodes"):
            for node in cluster.nodes:
                lock = units.machine_lock(cluster.unit_dir(node.name))
                await asyncio.to_thread(process_one.kill, lock)
        with progress.step("control plane"):
            for unit in (PORTS, BALANCER, CONTROL_PLANE):
                await _end_unit(cluster, unit, clock)
        removed = await clear(cluster, progress)
        with progress.step("state on the disk"):
            await asyncio.to_thread(disk.flush, cluster.dir)
        return Stopped(sum(counts), removed.processes)


async def _quiet(cluster: Cluster, node: Node, grace: int, clock: Clock) -> int:
    """End the node's daemons except containerd, then its containers. Returns how many there were.

    A node that is not well enough for that ends without: the kernel ends its processes with process 1.
    """
    folder = cluster.unit_dir(node.name)
    one = process_one.alive(units.machine_lock(folder))
    if not one:
        return 0
    os.kill(one, signal.SIGSTOP)  # or it would start the supervisor again, and that all the others
    units.kill_supervisor(folder)
    await _end_programs(folder, (*storage.HELPERS, "csi", "loadbalancer", "policy", "proxy", "agent"), clock)
    ended = await _end_containers(one, grace)
    await _end_programs(folder, ("containerd",), clock)
    return ended


async def _end_programs(folder: str, names: tuple[str, ...], clock: Clock) -> None:
    for name in names:
        units.terminate(folder, name)

    async def alive() -> str:
        rows = units.programs(folder)
        return ", ".join(name for name in names if rows.get(name, {}).get("alive"))

    with contextlib.suppress(NodewrightError):  # whatever hangs is killed with the node
        await until(alive, clock, _ENDS_WITHIN, obj=folder, step="stop", action="", pause=0.05)


async def _end_containers(one: int, grace: int) -> int:
    try:
        # A link in the place of the socket must not lead to the containerd of this machine.
        with reached(f"/proc/{one}/root{CONTAINERD_SOCKET}") as way:
            return await _end_all(way, grace)
    except OSError:
        return 0


async def _end_all(socket: str, grace: int) -> int:
    cri = Cri(f"unix://{socket}")
    try:
        async with asyncio.timeout(_LIST_WITHIN):
            running = [item.id for item in await cri.list_containers() if item.state is RunState.RUNNING]
        async with asyncio.timeout(grace + _ENDS_WITHIN):
            await asyncio.gather(*(cri.stop_container(item, grace) for item in running), return_exceptions=True)
        return len(running)
    except (TimeoutError, NodewrightError):
        return 0  # no runtime, no order: the kernel ends them with the node
    finally:
        await cri.close()


async def _end_unit(cluster: Cluster, unit: str, clock: Clock) -> None:
    """SIGTERM for the supervisor, which ends its programs the last started first."""
    folder = cluster.unit_dir(unit)
    pid = units.supervisor_pid(folder)
    if not pid:
        return
    os.kill(pid, signal.SIGTERM)

    async def alive() -> str:
        return "its supervisor" if units.supervisor_pid(folder) else ""

    with contextlib.suppress(NodewrightError):  # it is killed with all that is left
        await until(alive, clock, _ENDS_WITHIN, obj=unit, step="stop", action="", pause=0.05)
