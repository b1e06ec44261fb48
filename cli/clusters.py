"""Finds the clusters of this machine by name."""

from __future__ import annotations

from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from nodelib.errors import NotFound


def find(name: str) -> Cluster:
    """The cluster of that name. Raises NotFound when there is none."""
    cluster = state.load(name)
    if cluster is None:
        there = ", ".join(state.clusters())
        raise NotFound(
            f"no such cluster on this machine{f' (there is: {there})' if there else ''}",
            obj=name,
            action=f"Create it with `./nodewright up --name {name}`.",
        )
    return cluster
