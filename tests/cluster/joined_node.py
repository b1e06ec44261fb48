"""A node of a cluster of tests that joined by `nodewright join`."""

from __future__ import annotations

import os
import subprocess

from controlplane.cluster.model import Cluster
from controlplane.machine.edge import cgroups
from controlplane.machine.edge.namespaces import in_cgroups, in_node
from tests.cluster.command_line import PROJECT


def in_node2(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run in the node's namespaces, and in the cgroup whose processes `down` kills."""
    folders = cgroups.ensure(cgroups.hierarchies(), f"{cluster.cgroup}/node2/system")
    line = in_cgroups(folders, in_node(cluster.namespaces("node2"), argv))
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(line, capture_output=True, text=True, timeout=180, env=environment)
