"""Writes files all or nothing: a reader sees the old text or the new."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodelib import files
from nodelib.errors import Invalid


def write(path: str, text: str | bytes, mode: int = 0o600) -> None:
    """Replace a file atomically; missing folders are made."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.replace(path, text, mode)


def write_if_changed(path: str, text: str | bytes, mode: int = 0o600) -> bool:
    """write() unless the file already holds that text. True if it was written."""
    if files.holds(path, text):
        return False
    write(path, text, mode)
    return True


def refuse_of_others(folder: Path, step: str) -> None:
    """Raises Invalid for the folder of another user, who may put links into it while this process writes there.

    Whoever used sudo may do as root does anyway.
    """
    try:
        owner = os.stat(folder).st_uid
    except FileNotFoundError:
        return
    if str(owner) not in ("0", str(os.geteuid()), os.environ.get("SUDO_UID", "")):
        raise Invalid("belongs to another user", obj=str(folder), step=step, action="Name a new directory.")


@contextmanager
def inside(root: str, path: str) -> Iterator[str]:
    """A path of the folder `path` below `root`, for the block; missing folders are made.

    Who is root in a node may put anything into its folders, meanwhile too: no link of the tree is followed, as it would
    lead out of it. One in the place of a folder is removed. Raises OSError.
    """
    os.makedirs(root, exist_ok=True)
    here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            inner = _entered(here, part)
            os.close(here)
            here = inner
        yield f"/proc/self/fd/{here}"
    finally:
        os.close(here)


def _entered(folder: int, name: str) -> int:
    for _ in range(3):
        try:
            return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=folder)
        except NotADirectoryError:
            if not stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise
            os.unlink(name, dir_fd=folder)
    raise OSError(errno.ELOOP, "somebody puts a link there again and again", name)
