"""mkfs, fsck, growth, freezing and usage of the file systems in images."""

from __future__ import annotations

import errno
import fcntl
import os

from csi.model import Usage
from nodelib import command
from nodelib.errors import Permanent, Temporary

_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878  # linux/fs.h
_SECONDS = 300.0
_REPAIRED = (0, 1)  # fsck(8): no errors, errors corrected
# Files of a sparse image read as zeros, so mkfs.ext4 has nothing to write to inode tables or journal.
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-e", "remount-ro", "-E", "lazy_journal_init=1"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
_PACKAGE = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}


async def make(fs_type: str, path: str) -> None:
    """Raises Temporary, and Permanent when the program is missing."""
    await _run([*_MAKE[fs_type], path], fs_type)


async def repair(fs_type: str, path: str) -> None:
    """Raises Temporary when it is damaged so that only a person can decide. XFS repairs itself when it is mounted."""
    if fs_type == "ext4":
        done = await command.run(["e2fsck", "-p", path], check=False, timeout=_SECONDS)
        if done.returncode not in _REPAIRED:
            raise Temporary(
                f"e2fsck ends with {done.returncode}: {(done.text + done.stderr.decode(errors='replace')).strip()}",
                obj=path,
                step="check the file system",
                action="Let `e2fsck -f` repair it while no pod uses the volume, or restore a snapshot.",
            )


async def grow(fs_type: str, image: str) -> None:
    """Let an unmounted file system fill its image. Raises Temporary. XFS grows only when it is mounted."""
    if fs_type == "ext4":
        await command.run(["e2fsck", "-f", "-p", image], check=False, timeout=_SECONDS)
        await _run(["resize2fs", image], fs_type)


async def grow_mounted(fs_type: str, device: str, mounted_at: str) -> None:
    """Raises Temporary, and Permanent when the kernel or a missing program does not let it grow while it is mounted."""
    argv = ["resize2fs", device] if fs_type == "ext4" else ["xfs_growfs", mounted_at]
    try:
        await _run(argv, fs_type)
    except command.CommandError as error:
        if b"Permission denied" in error.stderr or b"Operation not permitted" in error.stderr:
            raise Permanent(
                "the kernel lets this process not grow a mounted file system (ext4 needs CAP_SYS_RESOURCE)",
                obj=device,
                step="grow",
                action="It grows when the pods that use it have been deleted and a new one starts.",
            ) from error
        raise


def freeze(path: str) -> int:
    """Until release() nobody can write to the file system mounted there, or unmount it. Raises OSError.

    A frozen one that is unmounted stays in the kernel, with its device and the space of its image, for ever.
    """
    handle = _folder(path)
    try:
        fcntl.ioctl(handle, _FIFREEZE, 0)
    except OSError:
        os.close(handle)
        raise
    return handle


def release(handle: int) -> None:
    """What freeze() has returned. Raises OSError."""
    try:
        _thaw(handle)
    finally:
        os.close(handle)


def thaw(path: str) -> None:
    """Does nothing when it is not frozen. Raises OSError."""
    release(_folder(path))


def usage(path: str) -> Usage:
    """Raises OSError."""
    found = os.statvfs(path)
    unit = found.f_frsize
    used = (found.f_blocks - found.f_bfree) * unit
    return Usage(found.f_blocks * unit, found.f_bavail * unit, used, found.f_files, found.f_ffree)


def _folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _thaw(handle: int) -> None:
    try:
        fcntl.ioctl(handle, _FITHAW, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


async def _run(argv: list[str], fs_type: str) -> None:
    try:
        await command.run(argv, timeout=_SECONDS)
    except command.CommandError as error:
        if error.returncode == 127:
            raise Permanent(
                error.message, obj=argv[0], step="run", action=f"Install the package {_PACKAGE[fs_type]} on the node."
            ) from error
        raise
