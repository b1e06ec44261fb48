"""Files and folders below the host's log folder. Symbolic links are followed only while they stay inside it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator
from typing import BinaryIO

from agent.server.model import SystemLogFile, SystemLogFolder

_PIECE = 64 << 10  # bytes


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


async def read(file: SystemLogFile) -> AsyncGenerator[bytes, None]:
    """The content up to where it ends now: a log that grows for ever ends all the same. Raises OSError."""
    opened, left = await asyncio.to_thread(_open, file.path)
    try:
        while left > 0 and (piece := await asyncio.to_thread(opened.read, min(_PIECE, left))):
            left -= len(piece)
            yield piece
    finally:
        opened.close()


def _open(path: str) -> tuple[BinaryIO, int]:
    # The path was resolved: what has become a link or a pipe since then is refused.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise OSError(f"{path} is no regular file any more")
    return open(handle, "rb"), found.st_size
