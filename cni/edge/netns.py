"""Network namespaces: open them, check them, run code inside them. Decides nothing.

setns(2) changes only the calling thread. A pool thread left in a pod's namespace would give its next user the wrong
network, so whatever has to run inside another namespace gets a thread of its own, which is never used again
(https://man7.org/linux/man-pages/man2/setns.2.html).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cni.spec.errors import INVALID_NETNS, UNKNOWN_CONTAINER, CNIError
from nodelib.errors import NodewrightError, Permanent

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NS_GET_NSTYPE = 0xB703  # linux/nsfs.h


def open_namespace(path: str) -> int:
    """Open `path` and return the descriptor. Raises CNIError(UNKNOWN_CONTAINER) when it cannot be opened."""
    try:
        # O_NONBLOCK: the path comes from outside and could be a FIFO, which would block.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise CNIError(
            UNKNOWN_CONTAINER,
            f"cannot open the network namespace {path}: {reason}",
            details="The sandbox is gone or was never made: the runtime must make a new one.",
        ) from error


@contextmanager
def opened(path: str) -> Iterator[int]:
    """`open_namespace` with a check, closed at the end. Raises CNIError."""
    descriptor = open_namespace(path)
    try:
        check_namespace(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def check_namespace(fd: int, path: str) -> None:
    """Raises CNIError(INVALID_NETNS) unless `fd` is a network namespace other than this process's own."""
    try:
        kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL):
            raise
        kind = 0
    if kind != _CLONE_NEWNET:
        raise CNIError(INVALID_NETNS, f"CNI_NETNS {path} is not a network namespace", details="Give the path of one.")
    if same_namespace(fd):
        raise CNIError(
            INVALID_NETNS,
            f"CNI_NETNS {path} is the node's own network namespace",
            details="A pod on the host network needs no CNI call.",
        )


def same_namespace(fd: int) -> bool:
    """Whether `fd` is the namespace of the calling thread."""
    own, other = os.stat("/proc/thread-self/ns/net"), os.fstat(fd)
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


def in_namespace(fd: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises, in a thread of its own inside the namespace `fd`."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            _setns(fd)
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _setns(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise _refused(code)


def _refused(code: int) -> NodewrightError:
    return Permanent(
        os.strerror(code),
        step="enter the pod's network namespace",
        action="The plugin must run as root of the node (CAP_SYS_ADMIN in the namespace's owner)."
        if code == errno.EPERM
        else "",
    )
