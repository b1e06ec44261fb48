"""`nodewright load`: imports images from archives on the nodes of a cluster, without a registry."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cli.clusters import find
from cli.errors import describe, need_root
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.work import node_images as images
from controlplane.images.edge.foreign import refuse_if_no_image
from nodelib.errors import NodewrightError, NotFound


def run(name: str, archives: list[Path], nodes: list[str]) -> None:
    """Import each archive on each node; exit status 1 if one failed, after all others have been tried."""
    need_root("load")
    cluster = find(name)
    chosen = _nodes(cluster, nodes)
    failed = [not asyncio.run(_load(cluster, chosen, archive.absolute())) for archive in archives]
    if any(failed):
        raise SystemExit(1)


def _nodes(cluster: Cluster, names: list[str]) -> list[Node]:
    there = {node.name: node for node in cluster.nodes}
    for name in names:
        if name not in there:
            raise NotFound("no such node in the cluster", obj=name, action=f"There are: {', '.join(there)}.")
    return [there[name] for name in dict.fromkeys(names)] or list(there.values())


async def _load(cluster: Cluster, nodes: list[Node], archive: Path) -> bool:
    """Whether every node has it now; failures are printed."""
    try:
        gzip = await asyncio.to_thread(refuse_if_no_image, archive)
    except NodewrightError as error:
        print(describe(error), file=sys.stderr)
        return False
    wanted = (images.load(cluster, node, archive, gzip=gzip) for node in nodes)
    outcomes = await asyncio.gather(*wanted, return_exceptions=True)
    loaded: dict[str, list[str]] = {}
    for node, outcome in zip(nodes, outcomes, strict=True):
        if isinstance(outcome, NodewrightError):
            print(describe(outcome), file=sys.stderr)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            for image in outcome:
                loaded.setdefault(image, []).append(node.name)
    for image, on in loaded.items():
        print(f"{image}: on {', '.join(on)}")
    if any(image.endswith(":latest") for image in loaded):
        print("Pods still pull images with the tag latest, unless they set `imagePullPolicy: IfNotPresent`.")
    return not any(isinstance(outcome, NodewrightError) for outcome in outcomes)
