"""`down`: removes a cluster in whatever state it is, and leaves nothing behind.

It may be interrupted anywhere, thanks to its order: first the nodes' own first processes and the supervisors, which
would restart programs, then every process (found by cgroup, so no file needs to list it), then mounts and links, and
the cluster's record last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, replace

from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import state_root
from controlplane.cluster.model import CGROUP_ROOT, Cluster, Options
from controlplane.cluster.plan.addresses import check_name
from controlplane.cluster.work import host_changes, user_kubeconfig, volume_devices
from controlplane.machine.edge import cgroups, namespaces, process_one
from controlplane.machine.edge.locks import directory_lock
from controlplane.machine.edge.netlink import Netlink
from controlplane.progress import Progress, Unshown
from controlplane.supervisor.edge import units
from nodelib import file_trees


@dataclass(frozen=True, slots=True)
class Removed:
    """What `down` found and removed. `processes`: of daemons and containers, on the nodes and of the control plane."""

    processes: int = 0
    mounts: int = 0
    link: bool = False
    rules: int = 0
    directory: bool = False
    kubeconfigs: tuple[str, ...] = ()  # why a user's kubeconfig could not be changed

    @property
    def anything(self) -> bool:
        return self != Removed()


async def down(name: str, progress: Progress) -> Removed:
    """Remove the cluster of that name. Raises NodewrightError when something cannot be removed; then run it again."""
    check_name(name)
    state.check_place(name)
    cluster = _of(name)
    if not state.exists(name):
        # After a crash there may be cgroups and a link without a record.
        shown = progress if await asyncio.to_thread(_is_left, cluster) else Unshown()
        removed = await _remove(cluster, shown)
    else:
        with directory_lock(cluster.dir):
            removed = await _remove(cluster, progress)
    await asyncio.to_thread(host_changes.undo_if_last)
    return removed


def _of(name: str) -> Cluster:
    # Only names and paths matter here: `down` must work even if the record is unreadable or missing.
    return Cluster(name, "10.89.0.0/24", Options(), root=state_root())


def _is_left(cluster: Cluster) -> bool:
    groups = (f"{root}{cluster.cgroup}" for root in cgroups.hierarchies().roots)
    return any(map(os.path.exists, (cluster.dir, f"/sys/class/net/{cluster.host_link}", *groups)))


async def clear(cluster: Cluster, progress: Progress) -> Removed:
    """Remove all of it but its directory: as a machine is after a reboot."""
    trees = cgroups.hierarchies()
    with progress.step("processes") as say:
        processes = await asyncio.to_thread(_end_processes, cluster, trees)
        say(f"{processes} ended")
    with progress.step("links and rules"):
        rules = await host_changes.remove_uplink(cluster.name)
        link = await asyncio.to_thread(_remove_link, cluster)
    with progress.step("namespaces and mounts") as say:
        mounts = await asyncio.to_thread(namespaces.unmount_below, cluster.dir)
        devices = await asyncio.to_thread(_detach_volumes, cluster)
        say(f"{mounts} unmounted" + (f", {devices} loop devices detached" if devices else ""))
    with progress.step("cgroups"):
        await asyncio.to_thread(cgroups.remove, trees, cluster.cgroup)
        cgroups.remove_if_empty(trees, CGROUP_ROOT)
    return Removed(processes, mounts, link, rules)


async def _remove(cluster: Cluster, progress: Progress) -> Removed:
    removed = await clear(cluster, progress)
    with progress.step("kubeconfig") as say:
        kept = await asyncio.to_thread(user_kubeconfig.remove, cluster)
        say(f"{len(kept)} left as they are" if kept else "")
    with progress.step("files"):
        directory = await asyncio.to_thread(_remove_directory, cluster)
    return replace(removed, directory=directory, kubeconfigs=tuple(one.problem for one in kept))


def _end_processes(cluster: Cluster, trees: cgroups.Hierarchies) -> int:
    """How many there were, as `clusters` counts them."""
    # Counted first: with a node's process 1 the kernel ends the rest of the node.
    there = len(cgroups.members(trees, cluster.cgroup))
    ended = 0
    if os.path.isdir(cluster.dir):
        for unit in os.listdir(cluster.dir):
            folder = cluster.unit_dir(unit)
            ended += process_one.kill(units.machine_lock(folder)) or units.kill_supervisor(folder)
    ended += cgroups.kill_all(trees, cluster.cgroup)
    return max(there, ended)


def _detach_volumes(cluster: Cluster) -> int:
    names = os.listdir(cluster.dir) if os.path.isdir(cluster.dir) else []
    return sum(volume_devices.detach(cluster.node_dir(name)) for name in names)


def _remove_link(cluster: Cluster) -> bool:
    if not os.path.exists(f"/sys/class/net/{cluster.host_link}"):
        return False
    with Netlink(lambda space: None) as netlink:
        return netlink.delete_link(cluster.host_link)


def _remove_directory(cluster: Cluster) -> bool:
    if not state.exists(cluster.name):
        with contextlib.suppress(OSError):  # `up` was ended before it wrote anything
            os.rmdir(cluster.dir)
        return False
    # The record is removed last: after an interruption there is still a cluster to remove.
    for name in sorted(os.listdir(cluster.dir), key=lambda entry: entry == "cluster.json"):
        path = os.path.join(cluster.dir, name)
        if os.path.isdir(path) and not os.path.islink(path):
            file_trees.remove(path)
        else:
            os.unlink(path)
    os.rmdir(cluster.dir)
    return os.path.isdir(state_root())
