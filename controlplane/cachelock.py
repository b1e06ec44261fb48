"""One lock per cache folder, held while it is filled: two runs never build the same thing twice.

A lock's file may be removed by whoever holds it (`unused`): who waited for it then waits for the file that is there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def cache_lock(path: Path, progress: Callable[[str], None], busy: str, *, shared: bool = False) -> Iterator[None]:
    """Blocks until the lock is ours, saying `busy` once if it is not at first; the kernel frees it when we die.

    `shared`: with others that only use what it guards.
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
    """Whether nobody holds this lock. Then it is ours for the body, and its file is gone afterwards."""
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
