"""Locks between processes, all of them flock(2): the kernel releases them when their holder dies.

A cache folder has a lock file, held while the folder is filled, so that two runs never build the same thing twice. Its
holder may remove that file (`unused`); whoever waited for it then waits for the file that is there now.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nodelib.errors import Conflict, NotFound


@contextmanager
def cache_lock(path: Path, progress: Callable[[str], None], busy: str, *, shared: bool = False) -> Iterator[None]:
    """Blocks until the lock is ours; reports `busy` once if it has to wait.

    `shared`: held together with others that only use what it guards.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    how, said = fcntl.LOCK_SH if shared else fcntl.LOCK_EX, False
    while True:
        with path.open("w") as held:
            if not _taken(held, how):
                if not said:
                    progress(f"{busy}: waiting for it")
                said = True
                fcntl.flock(held, how)
            if _is_at(held, path):
                yield
                return


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Whether nobody held this lock. If so, it is ours for the block, and its file is removed afterwards."""
    with path.open("w") as held:
        if not (_taken(held, fcntl.LOCK_EX) and _is_at(held, path)):
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def _taken(held: IO[str], how: int) -> bool:
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(held: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def directory_lock(
    directory: str,
    *,
    wait: bool = False,
    make: bool = True,
    shared: bool = False,
    holder: str = "`up` or `down` of this cluster",
) -> Iterator[None]:
    """Hold the lock on a directory itself. Raises Conflict when another process holds it, a `holder`.

    `make`: a directory that is missing is made; otherwise that is NotFound, for a cluster that was removed meanwhile.
    `shared`: held together with others that share it, also of this process.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        if make:
            os.makedirs(directory, mode=0o755, exist_ok=True)
        elif not os.path.isdir(directory):
            raise NotFound("is not there any more", obj=directory, step="take the lock", action="Was it removed?")
        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # `down` removed it just now
        try:
            fcntl.flock(handle, how if wait else how | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise Conflict(
                f"another {holder} is running",
                obj=directory,
                step="take the lock",
                action="Wait until it has finished, then run this again.",
            ) from error
        if _still_there(handle, directory):
            break
        os.close(handle)  # `down` removed it between open and lock: try again
    try:
        yield
    finally:
        os.close(handle)


def is_held(directory: str) -> bool:
    """Whether some process holds the lock on a directory. The lock itself is not tried: a holder to be would fail."""
    try:
        found = os.stat(directory)
    except FileNotFoundError:
        return False
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with open("/proc/locks", encoding="ascii", errors="replace") as file:
        return any(line.split()[1] == "FLOCK" and wanted in line.split() for line in file)


def _still_there(handle: int, directory: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(directory))
    except FileNotFoundError:
        return False
