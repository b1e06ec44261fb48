"""A power cut of the machine, as far as a cluster on it can tell."""

from __future__ import annotations

import subprocess

from controlplane.cluster.model import CONTROL_PLANE, Cluster
from controlplane.machine.edge import cgroups, process_one
from controlplane.machine.edge.namespaces import unmount_below
from controlplane.supervisor.edge import units


def as_after_a_reboot(cluster: Cluster) -> None:
    """All processes, namespaces, mounts, links and cgroups of the cluster end at once."""
    trees = cgroups.hierarchies()
    for node in cluster.nodes:
        process_one.kill(units.machine_lock(cluster.unit_dir(node.name)))
    units.kill_supervisor(cluster.unit_dir(CONTROL_PLANE))
    cgroups.kill_all(trees, cluster.cgroup)
    unmount_below(cluster.dir)
    subprocess.run(["ip", "link", "del", cluster.host_link], check=True)
    cgroups.remove(trees, cluster.cgroup)
