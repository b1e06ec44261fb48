"""Brings what was written to the disk."""

from __future__ import annotations

import ctypes
import os

from nodelib.errors import Temporary

_libc = ctypes.CDLL(None, use_errno=True)


def flush(folder: str) -> None:
    """Return once everything written to the file system of this folder is on its disk (syncfs(2)). Raises Temporary."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(handle) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise Temporary(reason, obj=folder, step="write the state to the disk", action="Check the disk (`dmesg`).")
    finally:
        os.close(handle)
