"""Gives Nodes the labels and taints that `up` was asked for."""

from __future__ import annotations

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.node_marks import marks_patch
from nodelib.kube.client import ApiError, KubeClient

_TRIES = 5  # a Node changes often while it starts


async def ensure(cluster: Cluster, client: KubeClient) -> list[str]:
    """Mend the labels and taints of every Node. Returns the names of those that were changed."""
    changed = []
    for member in cluster.members:
        path = f"/api/v1/nodes/{member.name}"
        for number in range(1, _TRIES + 1):
            patch = marks_patch(await client.get(path), member)
            if not patch:
                break
            try:
                await client.patch(path, patch)
            except ApiError as error:
                if error.code != 409 or number == _TRIES:
                    raise
            else:
                changed.append(member.name)
                break
    return changed
