"""Whether a call failed because this process or machine lacks something, and not because of what it was made for.

A probe that cannot open a socket says nothing about the pod; a file that cannot be opened for lack of descriptors is
not a file that is missing. Upstream's kubelet counts both as failures and restarts containers for them.
"""

from __future__ import annotations

import errno
import os
import resource

_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))


def is_shortage(error: BaseException) -> bool:
    """Whether the error, or the one that it came from, is a lack of descriptors or memory (EMFILE, ENOMEM, ...)."""
    return _errno(error) != 0


def describe(error: BaseException) -> str:
    """One sentence for the log: the shortage, and what to do."""
    number = _errno(error)
    name = os.strerror(number) if number else str(error)
    return f"this process lacks something: {name}. Raise its limit of open files, or free memory on the node."


def raise_file_limit() -> None:
    """Let this process have as many open files as the machine allows it: service managers begin with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # less than before is not asked for, and more is not to be had


def _errno(error: BaseException) -> int:
    """The number of the shortage that the error, or one of those that it came from, is; 0 if none is."""
    seen: BaseException | None = error
    for _ in range(5):
        if isinstance(seen, OSError) and seen.errno in _ERRNOS:
            return seen.errno
        seen = getattr(seen, "os_error", None) or getattr(seen, "__cause__", None)
    return 0
