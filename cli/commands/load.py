"""`nodewright load` and `unload`: put images on the nodes of a cluster, without a registry, and remove them."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from cli.clusters import find, refuse_if_stopped
from cli.errors import describe, need_root
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan.image_refs import is_name
from controlplane.cluster.work import node_images as images
from controlplane.images.edge import engines
from controlplane.images.edge.foreign import refuse_if_no_image
from nodelib.errors import NodewrightError, NotFound
from nodelib.text import one_line

_LINE = 4000  # bytes of a printed line
_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def run(name: str, sources: list[str], nodes: list[str]) -> None:
    """Put each archive or image on each node; exit status 1 if one failed, after all others have been tried."""
    need_root("load")
    _each(name, sources, nodes, _load_source)


def unload(name: str, names: list[str], nodes: list[str]) -> None:
    """Remove each image from each node; exit status as of run()."""
    need_root("unload")
    _each(name, names, nodes, _unload)


def _each(
    name: str, things: list[str], nodes: list[str], act: Callable[[Cluster, list[Node], str], Awaitable[bool]]
) -> None:
    cluster = find(name)
    chosen = _nodes(cluster, nodes)

    async def one_by_one() -> list[bool]:
        return [await act(cluster, chosen, thing) for thing in things]

    if not all(asyncio.run(one_by_one())):
        raise SystemExit(1)


def is_archive(source: str) -> bool:
    """Whether a word of the command line means a file and not an image."""
    path = Path(source)
    return path.exists() or source.startswith(("/", ".")) or source.endswith(_ARCHIVES) or not is_name(source)


async def _load_source(cluster: Cluster, nodes: list[Node], source: str) -> bool:
    if is_archive(source):
        return await _load(cluster, nodes, Path(source).absolute())
    with tempfile.TemporaryDirectory(prefix="nodewright-load-") as folder:
        archive = Path(folder, "image.tar")
        try:
            print(f"{source}: from {await engines.save(source, archive)}")
        except NodewrightError as error:
            print(describe(error), file=sys.stderr)
            return False
        return await _load(cluster, nodes, archive)


async def _unload(cluster: Cluster, nodes: list[Node], name: str) -> bool:
    """Whether it is on none of the nodes now. A node that never had it is no failure if another one did."""
    refuse_if_stopped(cluster)
    outcomes = await asyncio.gather(*(images.unload(cluster, node, name) for node in nodes), return_exceptions=True)
    gone = [node.name for node, outcome in zip(nodes, outcomes, strict=True) if isinstance(outcome, str)]
    problems = []
    for outcome in outcomes:
        if isinstance(outcome, NodewrightError):
            problems.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
    if gone:
        full = next(outcome for outcome in outcomes if isinstance(outcome, str))
        print(one_line(f"{full}: removed from {', '.join(gone)}", _LINE))
    if not all(isinstance(outcome, NotFound) for outcome in outcomes):
        problems = [one for one in problems if not isinstance(one, NotFound)]
    for problem in problems:
        print(describe(problem), file=sys.stderr)
    return not problems


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
    refuse_if_stopped(cluster)
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
        print(one_line(f"{image}: on {', '.join(on)}", _LINE))
    if any(image.endswith(":latest") for image in loaded):
        print("Pods still pull images with the tag latest, unless they set `imagePullPolicy: IfNotPresent`.")
    return not any(isinstance(outcome, NodewrightError) for outcome in outcomes)
