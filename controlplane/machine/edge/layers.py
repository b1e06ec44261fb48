"""Lets go of layers of images that are mounted for the node's containerd, once it has removed their snapshots.

The folder of a snapshot cannot be removed while something is mounted in it: containerd logs that, goes on (the snapshot
is out of its database by then), and tries again whenever it removes another one. Standard library only.
"""

from __future__ import annotations

import os

from controlplane.machine.edge.syscalls import unmount
from nodelib import mountinfo


def release(snapshots: str) -> list[str]:
    """Unmount every SNAPSHOTS/N/fs without a SNAPSHOTS/N/work, which containerd removes with it. Returns their paths.

    Raises OSError.
    """
    found = [one.path for one in mountinfo.of_process(containing=snapshots)]
    gone = [path for path in found if path.startswith(f"{snapshots}/") and _is_removed(path)]
    for path in gone:
        unmount(path)
    return gone


def _is_removed(layer: str) -> bool:
    folder, name = os.path.split(layer)
    return name == "fs" and not os.path.lexists(f"{folder}/work")
