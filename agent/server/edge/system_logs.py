"""Files and folders below the host's log folder. Symbolic links are followed only while they stay inside it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator
from itertools import islice

from agent.server.model import SystemLogFile, SystemLogFolder
from nodelib import files
from nodelib.openat2 import RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2

_PIECE = 64 << 10  # bytes
_MOST_NAMES = 10_000  # of a folder that are shown: a pod may have written to it


def find(root: str, path: str) -> SystemLogFile | SystemLogFolder | None:
    """What is at `path` below `root`; None when nothing is there, or a link leads out of `root`.

    A pod may have the folder and put a link, a pipe or a device in the place of what was just looked at: the file is
    opened once, without following links any more, and looked at then. Upstream follows any link.
    Blocking. Raises OSError for a folder that cannot be read.
    """
    root = os.path.realpath(root)
    try:
        found = os.path.realpath(os.path.join(root, path))
    except (OSError, ValueError):  # it is being changed; a zero byte
        return None
    if os.path.commonpath((found, root)) != root:
        return None
    try:
        opened = _opened(root, found)
    except OSError:
        return None
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        return _listed(opened)
    try:
        return SystemLogFile(found, os.fdopen(files.readable(opened), "rb"))
    except OSError:
        return None


def _opened(root: str, found: str) -> int:
    base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return openat2(base, os.path.relpath(found, root), os.O_PATH, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(base)


def _listed(opened: int) -> SystemLogFolder:
    try:
        with os.scandir(f"/proc/self/fd/{opened}") as entries:
            names = [entry.name + ("/" if entry.is_dir() else "") for entry in islice(entries, _MOST_NAMES)]
            return SystemLogFolder(tuple(sorted(names)), next(entries, None) is not None)
    finally:
        os.close(opened)


async def read(found: SystemLogFile) -> AsyncGenerator[bytes, None]:
    """The content up to where it ends now: a log that grows for ever ends all the same. Raises OSError."""
    with found.file:
        left = os.fstat(found.file.fileno()).st_size
        while left > 0 and (piece := await asyncio.to_thread(found.file.read, min(_PIECE, left))):
            left -= len(piece)
            yield piece
