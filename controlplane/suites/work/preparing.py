"""What a suite needs that is one program of its own: the program, and the image of its pods on every node."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

from controlplane.cluster.advice import ours
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.work.node_images import import_images
from controlplane.progress import Progress
from nodelib.errors import Invalid


def need_policies(cluster: Cluster, suite: str) -> None:
    """Raises Invalid for a cluster whose nodes do not enforce policies."""
    if not cluster.options.enforces_policies:
        raise Invalid(
            "its nodes do not enforce network policies",
            obj=f"cluster {cluster.name}",
            step=f"run the suite {suite}",
            action=f"Make one with {ours(cluster.name, 'up')}: no --no-network-policy, --kubeadm or --agent upstream.",
        )


async def prepare(cluster: Cluster, suite: str, image: str, binaries_dir: Path | None, progress: Progress) -> str:
    """Build or find the program `suite`, put `image` on the nodes; the program's path."""
    from controlplane.binaries.work import ensure
    from controlplane.images.work import binaries_for, ensure_images

    cache, names = Path(cache_root()), (image,)
    with progress.step("binaries and images of the suite") as say:
        wanted = (suite, "ctr", *binaries_for(names))
        found = await asyncio.to_thread(ensure, wanted, cache_dir=cache, progress=say, binaries_dir=binaries_dir)
        images = await asyncio.to_thread(ensure_images, names, cache_dir=cache, binaries=found, progress=say)
    tools = replace(Tools({}, "", ""), binaries={name: str(found.path(name)) for name in (suite, "ctr")})
    with progress.step("images on the nodes") as say:
        for node in cluster.nodes:
            say(await import_images(cluster, node, tools, images, exactly=True))
    return str(found.path(suite))


def has_sctp() -> bool:
    """Whether this kernel has SCTP."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True
