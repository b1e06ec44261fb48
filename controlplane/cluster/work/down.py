"""`down`: removes a cluster whatever state it is in, so that nothing of it stays.

The order is what makes it safe to be cut short anywhere: first who would start things anew, then every process
(found by cgroup, so also those that no file knows), then what only they held, the record last.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass

from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import CGROUP_ROOT, Cluster, Options
from controlplane.cluster.plan.addresses import check_name
from controlplane.cluster.work import host_changes
from controlplane.machine.edge import cgroups, namespaces
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.netlink import Netlink
from controlplane.progress import Progress
from controlplane.supervisor.edge import units


@dataclass(frozen=True, slots=True)
class Removed:
    """What was there to be removed."""

    processes: int = 0
    mounts: int = 0
    link: bool = False
    rules: int = 0
    directory: bool = False

    @property
    def anything(self) -> bool:
        return self != Removed()


async def down(name: str, progress: Progress) -> Removed:
    """Remove the cluster of that name. Raises NodewrightError when something cannot be removed; run it again then."""
    check_name(name)
    cluster = _of(name)
    if not state.exists(name):
        removed = await _remove(cluster, progress)  # a record lost to a crash may still have left cgroups and a link
    else:
        with directory_lock(cluster.dir):
            removed = await _remove(cluster, progress)
    await asyncio.to_thread(host_changes.undo_if_last)
    return removed


def _of(name: str) -> Cluster:
    # Only names and paths matter here: `down` must work with a record that cannot be read, or none.
    return Cluster(name, "10.89.0.0/24", Options(), root=state_root())


async def _remove(cluster: Cluster, progress: Progress) -> Removed:
    trees = cgroups.hierarchies()
    with progress.step("processes") as say:
        processes = await asyncio.to_thread(_end_processes, cluster, trees)
        say(f"{processes} ended")
    with progress.step("links and rules"):
        rules = await host_changes.remove_uplink(cluster.name)
        link = await asyncio.to_thread(_remove_link, cluster)
    with progress.step("namespaces and mounts") as say:
        mounts = await asyncio.to_thread(namespaces.unmount_below, cluster.dir)
        say(f"{mounts} unmounted")
    with progress.step("cgroups and files"):
        await asyncio.to_thread(cgroups.remove, trees, cluster.cgroup)
        cgroups.remove_if_empty(trees, CGROUP_ROOT)
        directory = await asyncio.to_thread(_remove_directory, cluster)
    return Removed(processes, mounts, link, rules, directory)


def _end_processes(cluster: Cluster, trees: cgroups.Hierarchies) -> int:
    supervisors = 0
    if os.path.isdir(cluster.dir):
        for unit in os.listdir(cluster.dir):
            supervisors += units.kill_supervisor(cluster.unit_dir(unit))
    return supervisors + cgroups.kill_all(trees, cluster.cgroup)


def _remove_link(cluster: Cluster) -> bool:
    if not os.path.exists(f"/sys/class/net/{cluster.host_link}"):
        return False
    with Netlink(lambda space: None) as netlink:
        return netlink.delete_link(cluster.host_link)


def _remove_directory(cluster: Cluster) -> bool:
    if not os.path.isdir(cluster.dir):
        return False
    # The record goes last: cut short, `down` is known to have work left.
    for name in sorted(os.listdir(cluster.dir), key=lambda entry: entry == "cluster.json"):
        path = os.path.join(cluster.dir, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    os.rmdir(cluster.dir)
    return os.path.isdir(state_root())
