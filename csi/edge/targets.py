"""Paths that the kubelet names: what is mounted there, mounts and unmounts. Blocking calls; they raise OSError."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from csi.edge.loops import MAJOR
from nodelib import mounts

_MS_RDONLY, _MS_REMOUNT, _MS_RELATIME = 1, 32, 1 << 21
# statvfs(3) and mount(2) have the same numbers for these: nosuid, nodev, noexec, noatime, nodiratime.
_SAME_FLAGS = 2 | 4 | 8 | 1024 | 2048
_ST_RELATIME = 4096


def mounted_device(path: str) -> int:
    """The device whose file system is mounted exactly at `path`, or which is bound there; 0: nothing is mounted."""
    if mounts.mount_at(path) is None:
        return 0
    found = os.lstat(path)
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev


def mount(device: str, target: str, fs_type: str, flags: int, data: str) -> None:
    """Mount on the directory `target`, which is made if need be and must be no link."""
    handle = _directory(target)
    try:
        mounts.mount(device, f"/proc/self/fd/{handle}", fs_type, flags, data)
    except mounts.MountError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno)}: mount {device} ({fs_type}, {data})", target) from error
    finally:
        os.close(handle)


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Bind a directory to a directory, or a device to a file; the target is made if need be and must be no link."""
    is_device = stat.S_ISBLK(os.stat(source).st_mode)
    if mounts.mount_at(target) is None:
        handle = _file(target) if is_device else _directory(target)
        try:
            _mount(source, f"/proc/self/fd/{handle}", target, mounts.MS_BIND)
        finally:
            os.close(handle)
    if read_only and not is_device:
        flags = os.statvfs(target).f_flag
        kept = flags & _SAME_FLAGS | (_MS_RELATIME if flags & _ST_RELATIME else 0)
        _mount("", target, target, mounts.MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def unmount(target: str) -> None:
    """Unmount what is there as often as it is mounted. Raises OSError for what is no loop device: it is not ours."""
    while device := mounted_device(target):
        if os.major(device) != MAJOR:
            raise OSError(errno.EINVAL, "what is mounted there is no volume of this driver", target)
        try:
            mounts.unmount(target)
        except mounts.MountError as error:
            raise OSError(error.errno, os.strerror(error.errno), target) from error


def remove(target: str) -> None:
    """Remove an empty directory or an empty file; nothing happens when it is gone. OSError for anything else."""
    with suppress(FileNotFoundError):
        found = os.lstat(target)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(target)
        elif stat.S_ISREG(found.st_mode) and found.st_size == 0:
            os.unlink(target)
        else:
            raise OSError(errno.EINVAL, "is neither an empty directory nor an empty file", target)


def _mount(source: str, at: str, target: str, flags: int) -> None:
    try:
        mounts.mount(source, at, "", flags)
    except mounts.MountError as error:
        raise OSError(error.errno, os.strerror(error.errno), target) from error


def _directory(target: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(target, 0o750)
    return os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _file(target: str) -> int:
    with suppress(FileExistsError):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    handle = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a file that a device can be bound to", target)
    return handle
