"""Loop devices of volumes that a node had, and which the kernel does not end with it.

A device with a mounted file system clears itself with the last unmount; that of a block volume does not.
"""

from __future__ import annotations

import glob

from csi.edge import loops
from csi.settings import KUBELET, ROOT


def detach(node_dir: str) -> int:
    """Detach those of one node, whose processes have ended; how many there were. Raises OSError."""
    count = 0
    for image in glob.iglob(f"{glob.escape(node_dir)}/kubelet{ROOT.removeprefix(KUBELET)}/volumes/*/disk.img"):
        for loop in loops.find(image):
            loops.detach(loop)
            count += 1
    return count
