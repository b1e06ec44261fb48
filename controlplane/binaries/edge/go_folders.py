"""Where Go keeps what it compiles and the sources that it fetches: folders of nodewright's own cache.

Compiling needs gigabytes there, and what it makes half of one: whoever uses the folders last empties them. A run that
fails or is killed leaves them, and the next one compiles only the rest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from controlplane.machine.edge.locks import cache_lock, unused

Progress = Callable[[str], None]

_OBJECTS, _SOURCES, _LOCK = "go-build", "go-mod", "go-build/.lock"
_DOWNLOADS = "cache"  # below the sources: their archives, a quarter of the size, from which Go unpacks them again


@contextmanager
def go_folders(cache_dir: Path, progress: Progress) -> Iterator[Mapping[str, str]]:
    """The environment that makes Go use these folders; they are emptied after the block, unless others use them too.

    Sources stay where the user's own GOMODCACHE says, and stay there.
    """
    objects, sources = cache_dir / _OBJECTS, cache_dir / _SOURCES
    with used_go_folders(cache_dir, progress), tempfile.TemporaryDirectory(prefix="tmp-", dir=objects) as scratch:
        own = {} if os.environ.get("GOMODCACHE") else {"GOMODCACHE": str(sources)}
        yield {**own, "GOCACHE": str(objects / "cache"), "GOTMPDIR": scratch}
    empty_go_folders(cache_dir, progress)


@contextmanager
def used_go_folders(cache_dir: Path, progress: Progress) -> Iterator[None]:
    """While the block runs, nobody empties the folders: for one who builds several times."""
    with cache_lock(cache_dir / _LOCK, progress, "another run removes what Go has left", shared=True):
        yield


def empty_go_folders(cache_dir: Path, progress: Progress = lambda text: None) -> bool:
    """Remove what Go has left, but for the archives of its sources. False if somebody uses the folders.

    Those are tens of thousands of files: a minute on a machine with other work, and Ctrl-C waits for it.
    """
    with unused(cache_dir / _LOCK) as ours:
        if ours:
            lock = cache_dir / _LOCK
            left = [path for path in lock.parent.iterdir() if path != lock]
            sources = cache_dir / _SOURCES
            left += [path for path in sources.iterdir() if path.name != _DOWNLOADS] if sources.is_dir() else []
            if left:
                progress("removing what Go left")
            for path in left:
                shutil.rmtree(path, ignore_errors=True)
        return ours
