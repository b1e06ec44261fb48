"""mount(2), umount2(2), paths that stay in their volume, and the mount table.

Called in libc through ctypes: the mount command would cost a process (2 ms) every time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from functools import cache

from nodelib import mountinfo
from nodelib.errors import Permanent, Temporary
from nodelib.mountinfo import Mount
from nodelib.openat2 import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, openat2

MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8

_PLAIN = re.compile(r"[\w./~@:+=-]*", re.ASCII)


class MountError(Temporary):
    """The kernel refused a mount or unmount; `errno` says why."""

    def __init__(self, number: int, *, obj: str, step: str, action: str = "") -> None:
        super().__init__(os.strerror(number), obj=obj, step=step, action=action)
        self.errno = number


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, fs_type: str, flags: int = 0, data: str = "") -> None:
    """Raises MountError naming the target."""
    result = _libc().mount(
        os.fsencode(source), os.fsencode(target), fs_type.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    if result != 0:
        number = ctypes.get_errno()
        raise MountError(number, obj=target, step=f"mount {fs_type or 'bind'}", action=_advice(number))


def unmount(target: str, flags: int = UMOUNT_NOFOLLOW) -> None:
    """Does nothing when the target is no mount or is gone; raises MountError otherwise (EBUSY: still in use)."""
    if _libc().umount2(os.fsencode(target), flags) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise MountError(number, obj=target, step="unmount", action=_advice(number))


def set_propagation(target: str, kind: int) -> None:
    """Make the mount at `target` and all below it MS_PRIVATE, MS_SLAVE or MS_SHARED (mount_namespaces(7)).

    Raises MountError.
    """
    mount("", target, "", MS_REC | kind)


def seal(target: str) -> bool:
    """From now on, what is unmounted below `target` is unmounted there and nowhere else; False: it is no mount.

    A recursive bind mount is in the peer groups of what it shows: taken down as it is, it takes the originals along.
    """
    try:
        set_propagation(target, MS_PRIVATE)
    except MountError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        raise
    return True


def detach(target: str) -> None:
    """Unmount what is at `target` with all that is mounted in it, at once, whoever uses it, and nowhere else.

    Does nothing when the target is no mount or is gone; raises MountError otherwise.
    """
    if seal(target):
        unmount(target, MNT_DETACH | UMOUNT_NOFOLLOW)


def open_beneath(base_fd: int, path: str, flags: int) -> int:
    """Open `path` below `base_fd`; links are followed only while they stay below it (EXDEV otherwise).

    Raises OSError; ENOSYS on kernels before 5.6 is a Permanent error that says so.
    """
    try:
        return openat2(base_fd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise Permanent("the kernel has no openat2", step="subPath", action="Use Linux 5.6 or newer.") from error


def mounts_below(path: str) -> list[Mount]:
    """Every mount at or below `path`, in the order they were made."""
    prefix, written = path.rstrip("/") + "/", path if _PLAIN.fullmatch(path) else ""
    # A node has hundreds of mounts: most lines need not be parsed.
    found = mountinfo.of_process(containing=written)
    return [item for item in found if item.path == path or item.path.startswith(prefix)]


def mount_at(path: str) -> Mount | None:
    """The topmost mount exactly at `path`."""
    found = [item for item in mounts_below(path) if item.path == path]
    return found[-1] if found else None


def mounts_of(device: int) -> list[str]:
    """Where the file system of this device (st_dev) is mounted, the first mount first."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return [one.path for one in mountinfo.of_process(containing=f" {wanted} ") if one.device == wanted]


def _advice(number: int) -> str:
    match number:
        case errno.EPERM | errno.EACCES:
            return "This process needs CAP_SYS_ADMIN in its mount namespace."
        case errno.EBUSY:
            return "Something still uses it; it is tried again."
        case errno.ENOSPC | errno.ENOMEM:
            return "The node is out of memory or mounts (fs.mount-max)."
    return ""
