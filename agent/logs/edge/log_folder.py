"""The files of one container's log: list, rename, compress and remove them."""

from __future__ import annotations

import gzip
import os
import shutil
from contextlib import suppress
from itertools import islice

from nodelib import files
from nodelib.errors import Temporary

MOST_FILES = 10_000  # that are looked at; a container has containerLogMaxFiles of them for each of its attempts
_LARGEST = 1 << 30  # bytes of a file that is compressed: a larger one stays as it is, until it is removed


def size(path: str) -> int | None:
    """Size in bytes, None when the file does not exist.

    Raises Temporary: a pod may have the folder, and put a file or a loop of links in its place.
    """
    with suppress(FileNotFoundError), _explained("look at a container log", path):
        return os.stat(path).st_size
    return None


def names(folder: str) -> list[str]:
    """The first MOST_FILES names, in no order. Blocking: a pod may have the folder, and make millions of files.

    Raises Temporary.
    """
    with _explained("list the logs of a container", folder), os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, MOST_FILES)]


def remove(path: str) -> None:
    """Idempotent. Raises Temporary."""
    with suppress(FileNotFoundError), _explained("remove a rotated log", path):
        os.unlink(path)


def rename(path: str, to: str) -> None:
    """Raises Temporary."""
    with _explained("rename a container log", path):
        os.rename(path, to)


def pack(path: str) -> None:
    """Compress `path` to `path`.gz with the same mode; one of the two exists at all times. Raises Temporary.

    Nothing is done with a file that is larger than any log: it may be sparse, and terabytes of nothing take hours.

    No link is followed: a pod that may write to the folder would have any file of the node packed for it, or written.
    """
    staged = f"{path}.tmp"
    with _explained("compress a rotated log", path):
        try:
            found = files.readable(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
            with os.fdopen(found, "rb") as source:
                status = os.fstat(source.fileno())
                if status.st_size > _LARGEST:
                    return
                mode = status.st_mode & 0o777
                with suppress(FileNotFoundError):
                    os.unlink(staged)
                handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
                with os.fdopen(handle, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as packed:
                    shutil.copyfileobj(source, packed, 1 << 18)
            os.rename(staged, f"{path}.gz")
        finally:
            with suppress(FileNotFoundError):
                os.unlink(staged)
        os.unlink(path)


class _explained:
    """Turns an OSError into Temporary, with step and path."""

    def __init__(self, step: str, path: str) -> None:
        self._step = step
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise Temporary(
                error.strerror or str(error),
                obj=self._path,
                step=self._step,
                action="Check free space and permissions of the log folder; the rotation is retried.",
            ) from error
