"""Loop devices of volumes that a node had, and which the kernel does not end with it.

A device with a mounted file system clears itself with the last unmount; that of a block volume does not, nor one whose
file system was frozen for a snapshot when its driver was killed.
"""

from __future__ import annotations

import glob
import os
import tempfile
from contextlib import suppress

from csi.edge import file_systems, loops, targets
from csi.settings import KUBELET, ROOT
from nodelib import mounts

_TYPES = ("ext4", "xfs")


def detach(node_dir: str) -> int:
    """Detach those of one node, whose processes have ended; how many there were. Raises OSError."""
    count = 0
    for image in glob.iglob(f"{glob.escape(node_dir)}/kubelet{ROOT.removeprefix(KUBELET)}/volumes/*/disk.img"):
        # A link that the node left leads to an image that is not its own.
        parts = image.removeprefix(node_dir).split("/")
        if any(os.path.islink(node_dir + "/".join(parts[:end])) for end in range(2, len(parts) + 1)):
            continue
        for loop in loops.find(image):
            loops.detach(loop)
            count += 1
            if loop in loops.find(image):  # something in the kernel still has it open
                _thaw(loop)
    return count


def _thaw(loop: loops.Loop) -> None:
    """A file system that is frozen and not mounted can only be thawed where it is mounted once more."""
    folder = tempfile.mkdtemp(prefix="nodewright-")
    try:
        for fs_type in _TYPES:
            with suppress(OSError):
                targets.mount(loop.path, folder, fs_type, 0, "")
                break
        if mounts.mount_at(folder) is not None:
            file_systems.thaw(folder)
            mounts.unmount(folder)
    finally:
        os.rmdir(folder)
