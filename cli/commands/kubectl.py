"""`nodewright kubectl` and `nodewright kubeconfig`."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane.edge import state
from controlplane.model import Cluster, cache_root
from nodelib.errors import NotFound


def run(name: str, arguments: list[str]) -> None:
    """Become kubectl with the cluster's kubeconfig."""
    cluster = find(name)
    # The cluster's own tools are of its version; another kubectl in PATH may be skewed.
    path = cluster.tools.get("kubectl", "") or _cached()
    environment = {**os.environ, "KUBECONFIG": cluster.admin_kubeconfig}
    os.execve(path, ["kubectl", *arguments], environment)


def kubeconfig(name: str) -> None:
    """Print the path."""
    print(find(name).admin_kubeconfig)


def find(name: str) -> Cluster:
    """The cluster of that name. Raises NotFound when there is none."""
    cluster = state.load(name)
    if cluster is None:
        there = ", ".join(state.clusters())
        raise NotFound(
            f"no such cluster on this machine{f' (there is: {there})' if there else ''}",
            obj=name,
            action=f"Raise it with `./nodewright up --name {name}`.",
        )
    return cluster


def _cached() -> str:
    from controlplane.binaries import ensure

    return str(ensure(["kubectl"], cache_dir=Path(cache_root()), progress=print).path("kubectl"))
