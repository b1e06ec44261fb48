"""Which nodes may be removed from a cluster, and what is left then. Pure."""

from __future__ import annotations

from dataclasses import replace

from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster
from nodelib.errors import Invalid, NotFound


def check_removable(cluster: Cluster, node: str) -> None:
    """Raises NotFound or Invalid, with a sentence why, for a node that must stay."""
    names = [one.name for one in cluster.nodes]
    step = "remove a node"
    if node not in names:
        raise NotFound(
            f"the cluster {cluster.name} has no such node (there are: {', '.join(names)})",
            obj=node,
            step=step,
            action=f"{ours(cluster.name, 'status')} shows them.",
        )
    if node in names[: cluster.options.control_planes]:
        raise Invalid(
            "it holds the control plane: without it nothing of the cluster would be left",
            obj=node,
            step=step,
            action=f"Remove the whole cluster with {ours(cluster.name, 'down')}, or another node.",
        )
    if any(port.node == node for port in cluster.options.custom.ports):
        raise Invalid(
            "a port of this machine leads to it",
            obj=node,
            step=step,
            action=f"Run {ours(cluster.name, 'up', '--config', 'FILE')} with a file without that port first.",
        )


def without(cluster: Cluster, node: str) -> Cluster:
    """The cluster without the node; all others keep their names and addresses."""
    options = cluster.options
    names = [one.name for one in cluster.nodes]
    joined = node in names[len(names) - options.joined :] if options.joined else False
    left = tuple(one for one in options.all_members if one.name != node)
    return replace(
        cluster, options=replace(options, members=left, nodes=len(left), joined=options.joined - int(joined))
    )
