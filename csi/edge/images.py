"""Image files: new ones, and copies that share blocks where the file system can. Blocking calls; they raise OSError."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile

from csi import superblock
from nodelib.errors import Permanent

_FICLONE = 0x40049409
_PIECE = 16 << 20  # bytes
_CANNOT_SHARE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)


def make(path: str, size: int) -> None:
    """A file of this size without any block."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)


def copy(source: str, path: str, size: int, *, at_once: bool = False) -> None:
    """A new file with the content of `source`, as large as `size`; holes stay holes.

    `at_once`: with the content of one moment, as a power cut would leave it; raises Permanent where that cannot be had.
    """
    origin = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not share(origin, handle):
                if at_once:
                    raise Permanent(
                        "it is in use, and what is written to a block device meanwhile would be half in the copy",
                        obj=source,
                        step="copy",
                        action="Delete the pod that uses it first, or have the driver's folder on a file system that "
                        "shares blocks (XFS, btrfs).",
                    )
                _copy_data(origin, handle)
            os.ftruncate(handle, max(size, os.fstat(origin).st_size))
        finally:
            os.close(handle)
    finally:
        os.close(origin)


def share(origin: int, handle: int) -> bool:
    """Give the file `handle` the blocks of `origin`, at once; False: this file system cannot (XFS and btrfs can)."""
    try:
        fcntl.ioctl(handle, _FICLONE, origin)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def can_share(folder: str) -> bool:
    """Whether files in this folder can have blocks together."""
    with tempfile.TemporaryFile(dir=folder) as one, tempfile.TemporaryFile(dir=folder) as other:
        return share(one.fileno(), other.fileno())


def file_system_size(path: str, fs_type: str) -> int:
    """Bytes of the file system in the image, 0: there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return superblock.size_of(fs_type, os.pread(handle, superblock.HEAD, 0))
    finally:
        os.close(handle)


def _copy_data(origin: int, handle: int) -> None:
    at, end = 0, os.fstat(origin).st_size
    while at < end:
        try:
            at = os.lseek(origin, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        hole = os.lseek(origin, at, os.SEEK_HOLE)
        while at < hole:
            count = os.copy_file_range(origin, handle, min(_PIECE, hole - at), at, at)
            if count == 0:
                return
            at += count
