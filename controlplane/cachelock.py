"""One lock per cache folder, held while it is filled: two runs never build the same thing twice."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def cache_lock(path: Path, progress: Callable[[str], None], busy: str) -> Iterator[None]:
    """Blocks until the lock is ours, saying `busy` once if it is not at first; the kernel frees it when we die."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{busy}: waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
