"""A node's own containerd root, made of a seed; its biggest part is shared by hard links that no node can write to.

Files of unpacked layers are never written again (overlayfs copies up), and they are nearly all of a seed: a node has
hard links to them, in a folder outside of its file tree, which is bound read-only into its containerd root each time
the node's mounts are made. Whatever else containerd has (databases, blobs) is the node's own copy.

A link that a node could write to would be a way into the images of every other node, and of every cluster to come.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from controlplane.images.model.snapshots import FILES, SNAPSHOTS, WORK
from nodelib import file_trees
from nodelib.command import run_sync


def clone(seed: Path, dest: Path, layers: Path | None) -> None:
    """Make `dest` of the seed, and the files of its layers in `layers` if links can be made there.

    Otherwise, and for None, `dest` has copies of them. Neither may exist, but as an empty folder.
    """
    for folder in filter(None, (dest, layers)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            folder.rmdir()
    if layers is None or seed.stat().st_dev != layers.parent.stat().st_dev:
        run_sync(["cp", "-a", "--reflink=auto", str(seed), str(dest)], timeout=600)
        return
    run_sync(["cp", "-a", "--link", str(seed / SNAPSHOTS), str(layers)], timeout=600)
    shutil.copytree(seed, dest, symlinks=True, ignore=_files_of_layers)


def _files_of_layers(folder: str, names: list[str]) -> list[str]:
    return names if Path(folder).match(f"{SNAPSHOTS}/*/{FILES}") else []


def keep_used(layers: Path, root: Path) -> list[str]:
    """Remove the layers whose snapshots the containerd of `root` has removed. Returns the names of the others."""
    kept = []
    for name in sorted(os.listdir(layers) if layers.is_dir() else []):
        # It cannot remove a folder that something is mounted on, but removes what is beside it.
        if os.path.lexists(root / SNAPSHOTS / name / WORK):
            kept.append(name)
        else:
            file_trees.remove(f"{layers}/{name}")
    return kept
