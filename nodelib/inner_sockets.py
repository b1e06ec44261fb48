"""Sockets in another file tree: that of a node, where pods with enough rights may replace any file by a link."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from nodelib.openat2 import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, openat2

_INSIDE = re.compile(r"(/proc/[0-9]+/root)/(.+)")


@contextmanager
def reached(path: str) -> Iterator[str]:
    """A path to connect to, for the block: links of a tree (/proc/PID/root/...) are resolved within that tree.

    The kernel itself would resolve an absolute link from the root of whoever connects, so that a link in the place of
    a node's socket would lead to a socket of this machine. Raises OSError, also for what is no socket.
    """
    found = _opened(path)
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            raise OSError(errno.ENOTSOCK, "is not a socket", path)
        yield f"/proc/self/fd/{found}"
    finally:
        os.close(found)


def _opened(path: str) -> int:
    inside = _INSIDE.fullmatch(path)
    if inside is None:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    root = os.open(inside[1], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return openat2(root, inside[2], os.O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(root)
