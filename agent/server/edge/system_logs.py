"""Files and folders below the host's log folder. Symbolic links are followed only while they stay inside it."""

from __future__ import annotations

import os
import stat

from agent.server.model import SystemLogFile, SystemLogFolder


def find(root: str, path: str) -> SystemLogFile | SystemLogFolder | None:
    """What is at `path` below `root`; None when nothing is there, or a link leads out of `root`.

    Blocking. Raises OSError for a folder that cannot be read.
    """
    root = os.path.realpath(root)
    found = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath((found, root)) != root:
        return None
    try:
        mode = os.stat(found).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        with os.scandir(found) as entries:
            return SystemLogFolder(tuple(sorted(entry.name + ("/" if entry.is_dir() else "") for entry in entries)))
    return SystemLogFile(found) if stat.S_ISREG(mode) else None
