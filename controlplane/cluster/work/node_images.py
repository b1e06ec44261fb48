"""Imports images into a node's containerd from archives, and removes them; nothing is pulled."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.cluster.advice import ours
from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import image_refs
from controlplane.cluster.plan.components import Tools
from controlplane.images.edge.layout import read_archive
from controlplane.images.edge.unxz import SUFFIX, unxz
from controlplane.machine.edge.namespaces import alone_in_node, is_bound
from nodelib import command
from nodelib.errors import Conflict, Invalid, NotFound, Temporary
from nodelib.text import one_line

_IMPORT_TIMEOUT = 1200.0  # seconds; on a slow machine it takes minutes
_UNPACKED = re.compile(r"unpacking (\S+) \(")


async def import_images(
    cluster: Cluster, node: Node, tools: Tools, images: Mapping[str, Path], *, exactly: bool = False
) -> str:
    """Import each archive whose image the node does not have yet. Returns a summary of one line.

    `exactly`: an image of the same name and another content is replaced, too.
    """
    wanted = await asyncio.to_thread(_digests, images) if exactly else dict.fromkeys(images, "")
    listing = (await _ctr(cluster, node, tools, "images", "ls")).text.splitlines()
    missing = sorted({str(images[name]) for name in image_refs.to_import(listing, wanted)})
    for path in missing:
        if path.endswith(SUFFIX):
            await _import_compressed(cluster, node, tools, path)
        else:
            await _ctr(cluster, node, tools, "images", "import", "--local", path)
    return f"{len(missing)} images imported" if missing else "all images there"


async def _import_compressed(cluster: Cluster, node: Node, tools: Tools, path: str) -> None:
    ctr = [tools.binaries["ctr"], "-n", "k8s.io", "images", "import", "--local", "-"]
    inside = alone_in_node(cluster.namespaces(node.name), ctr)
    await command.run(
        ["bash", "-c", 'set -o pipefail; $UNXZ "$0" | "$@"', path, *inside],
        timeout=_IMPORT_TIMEOUT,
        env={**os.environ, "UNXZ": shlex.join(unxz())},
    )


def _digests(images: Mapping[str, Path]) -> dict[str, str]:
    return {name: str(read_archive(path).names.get(name, {}).get("digest", "")) for name, path in images.items()}


async def name_only(cluster: Cluster, node: Node, tools: Tools, source: str, names: Sequence[str]) -> None:
    """Tag the image `source` with `names`, pinned, so that image garbage collection keeps them.

    For suites that check whether an image exists but never run it.
    """
    present = set((await _ctr(cluster, node, tools, "images", "ls", "-q")).text.split())
    missing = [name for name in names if name not in present]
    if missing:
        # --local, because the transfer service takes the digest out of a name and finds that it does not match.
        await _ctr(cluster, node, tools, "images", "tag", "--local", source, *missing)
    for name in missing:
        await _ctr(cluster, node, tools, "images", "label", name, "io.cri-containerd.pinned=pinned")


async def load(cluster: Cluster, node: Node, archive: Path, *, gzip: bool) -> list[str]:
    """Import an archive. Returns the images' names. Raises Temporary, or Invalid with containerd's reason."""
    _refuse_without_node(cluster, node, "load an image")
    ctr = cluster.tools.get("ctr") or "ctr"
    inside = alone_in_node(cluster.namespaces(node.name), [ctr, "-n", "k8s.io", "images", "import", "--local", "-"])
    # Through standard input: the file may be where the node has its own mounts.
    script = 'gzip -dc -- "$0" | "$@"' if gzip else 'exec "$@" < "$0"'
    done = await command.run(["sh", "-c", script, str(archive), *inside], timeout=_IMPORT_TIMEOUT, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise Invalid(
            one_line(said[-1].removeprefix("ctr: "), 2000),
            obj=f"{archive} on {node.name}",
            step="import it into containerd",
            action=f"Is it for this machine's platform ({platform.machine()})? containerd's log is in "
            f"{cluster.log_dir(node.name)}.",
        )
    names = [found[1] for line in done.text.splitlines() if (found := _UNPACKED.match(line))]
    if not names:
        raise Invalid(
            "the archive names no image",
            obj=str(archive),
            step="import it into containerd",
            action="Save it by name and tag: `docker save -o FILE NAME:TAG`.",
        )
    return [name for name in names if "@sha256:" not in name] or names


async def unload(cluster: Cluster, node: Node, name: str) -> str:
    """Remove an image. Returns its full name.

    Raises Temporary, NotFound, or Conflict while a container of the node was made from it.
    """
    step = "unload an image"
    _refuse_without_node(cluster, node, step)
    tools = Tools({"ctr": cluster.tools.get("ctr") or "ctr"}, "", "")
    refs = image_refs.references((await _ctr(cluster, node, tools, "images", "ls")).text.splitlines(), name)
    where = f"{name} on {node.name}"
    if not refs:
        raise NotFound(
            "no such image",
            obj=where,
            step=step,
            action=f"{ours(cluster.name, 'images', node.name)} lists them.",
        )
    held = image_refs.users((await _ctr(cluster, node, tools, "containers", "ls")).text.splitlines(), refs)
    if held:
        raise Conflict(
            f"{len(held)} container{'' if len(held) == 1 else 's'} of the node were made from it",
            obj=where,
            step=step,
            action="Delete the pods that use it, then run this again.",
        )
    await _ctr(cluster, node, tools, "images", "rm", "--sync", *refs)
    return refs[0]


def _refuse_without_node(cluster: Cluster, node: Node, step: str) -> None:
    if not is_bound(cluster.namespace(node.name, "pid")):
        raise Temporary(
            "is not there",
            obj=f"node {node.name}",
            step=step,
            action=f"{ours(cluster.name, 'up')} repairs it.",
        )


async def _ctr(cluster: Cluster, node: Node, tools: Tools, *arguments: str) -> command.Completed:
    argv = [tools.binaries["ctr"], "-n", "k8s.io", *arguments]
    return await command.run(alone_in_node(cluster.namespaces(node.name), argv), timeout=_IMPORT_TIMEOUT)
