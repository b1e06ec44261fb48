"""Gives a node's containerd the images that it lacks; nothing is pulled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from controlplane.edge.spaces import entered
from controlplane.model import Cluster, Node
from controlplane.plan.components import Tools
from nodelib import command

_IMPORT_TIMEOUT = 300.0


async def import_images(cluster: Cluster, node: Node, tools: Tools, images: Mapping[str, Path]) -> str:
    """Import each archive whose image the node does not have yet. Returns a line about it."""
    present = set((await _ctr(cluster, node, tools, "images", "ls", "-q")).text.split())
    missing = sorted({str(path) for name, path in images.items() if name not in present})
    for path in missing:
        await _ctr(cluster, node, tools, "images", "import", "--local", path)
    return f"{len(missing)} images imported" if missing else "all images there"


async def _ctr(cluster: Cluster, node: Node, tools: Tools, *arguments: str) -> command.Completed:
    argv = [tools.binaries["ctr"], "-n", "k8s.io", *arguments]
    inside = entered(cluster.namespace(node.name, "net"), argv, mnt=cluster.namespace(node.name, "mnt"))
    return await command.run(inside, timeout=_IMPORT_TIMEOUT)
