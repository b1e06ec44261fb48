"""Undoes `join` on this machine: stops pods and daemons, removes mounts and files of the node.

A node may not delete its own Node object; an admin of the cluster does (`kubectl delete node`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable

from agent.runtime.edge.cri import Cri
from controlplane.host.plan import join as plan
from controlplane.host.work.join import DROP_IN
from controlplane.host.work.join_programs import FOLDER
from controlplane.machine.edge import namespaces
from controlplane.progress import Progress
from controlplane.supervisor.edge import units
from controlplane.waiting import until
from nodelib import file_trees
from nodelib.clock import Clock
from nodelib.command import run
from nodelib.daemons.python_path import python_path
from nodelib.errors import NodewrightError, NotFound
from nodelib.files import text_of

_KUBELET = "/var/lib/kubelet"
_FILES = (plan.KUBELET_CONF, plan.BOOTSTRAP_CONF, plan.CA_FILE, plan.PROXY_CONFIG)
_STOPS_WITHIN = 60.0
_CLEAN_WITHIN = 300.0  # seconds: of a cluster with very many Services


async def leave(progress: Progress, clock: Clock, project: str) -> None:
    """Leave the cluster; after an error it may be run again. `project`: the folder of the daemons' code.

    Raises NotFound when this machine has not joined a cluster.
    """
    if not os.path.isdir(FOLDER):
        raise NotFound(
            "this machine has not joined a cluster", obj=FOLDER, step="leave", action="There is nothing to do."
        )
    with progress.step("agent and proxy"):
        pid = await stop_daemons(FOLDER, project, clock)
    with progress.step("pods") as say:
        say(f"{await remove_pods()} removed")
    with progress.step("rules and network"):
        await _clean_up(project)
    with progress.step("files and mounts"):
        if pid:  # this also stops the runtime if it is ours
            os.kill(pid, signal.SIGTERM)
            await until(_supervisor_lives, clock, _STOPS_WITHIN, obj=FOLDER, step="stop", action="See its logs.")
        await asyncio.to_thread(_remove_files)


async def stop_daemons(folder: str, project: str, clock: Clock) -> int:
    """Stop agent and proxy for good. Returns the pid of the supervisor, 0 where nothing ran.

    The runtime stays, as it is needed to remove the pods. A supervisor that was killed left its programs running, and
    they would go on as a node without files: another one takes them over, to stop them.
    """

    async def daemons_run() -> str:
        rows = units.programs(folder)
        return ", ".join(name for name, row in rows.items() if row["alive"] and name != "containerd")

    for program in units.program_names(folder):
        if program != "containerd":
            units.keep_stopped(folder, program)
    if any(row["alive"] for row in units.programs(folder).values()):
        await asyncio.to_thread(units.ensure_supervisor, folder, f"{folder}/supervisor.log", project)
    pid = units.supervisor_pid(folder)
    if pid:
        os.kill(pid, signal.SIGHUP)
        await until(daemons_run, clock, _STOPS_WITHIN, obj=folder, step="stop", action="See its logs.")
    return pid


async def _clean_up(project: str) -> None:
    programs = {name: units.arguments(FOLDER, name) for name in units.program_names(FOLDER)}
    for line in plan.cleanups(programs):
        await run(line, env={**os.environ, "PYTHONPATH": python_path(project)}, timeout=_CLEAN_WITHIN)


async def _supervisor_lives() -> str:
    return "the supervisor" if units.supervisor_pid(FOLDER) else ""


async def remove_pods(drop_in: str = DROP_IN) -> int:
    """How many there were. None are left where `drop_in` is not there any more; the runtime may have ended by then."""
    if not os.path.exists(drop_in):
        return 0
    runtime = plan.socket_in(text_of(drop_in))
    cri = Cri(runtime)
    try:
        sandboxes = await cri.list_sandboxes()
        for one in sandboxes:
            await cri.stop_sandbox(one.id)
            await cri.remove_sandbox(one.id)
        os.unlink(drop_in)
        return len(sandboxes)
    except NodewrightError as error:
        raise NodewrightError(
            error.message, obj=runtime, step="remove the pods", action="Start the container runtime, then leave again."
        ) from error
    finally:
        await cri.close()


def _remove_files() -> None:
    remove_files(_KUBELET, _FILES, FOLDER)


def remove_files(kubelet: str, files: Iterable[str], folder: str) -> None:
    """`folder`, below that of the kubelet, goes last: while it is there, leave() may be run again."""
    for path in files:
        if os.path.exists(path):
            os.unlink(path)
    names = os.listdir(kubelet)
    for name in sorted(names, key=lambda one: os.path.join(kubelet, one) == folder):
        path = os.path.join(kubelet, name)
        namespaces.unmount_below(path)
        if os.path.isdir(path) and not os.path.islink(path):
            file_trees.remove(path)
        else:
            os.unlink(path)
