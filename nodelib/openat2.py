"""openat2(2): open a file with limits to how its path is resolved. Python has no function for it yet."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

_SYS_OPENAT2 = 437  # the same number on every architecture
_ATTEMPTS = 16


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def openat2(dir_fd: int, path: str, flags: int, resolve: int) -> int:
    """A new descriptor, closed on exec. `resolve`: RESOLVE_* joined by |.

    Raises OSError: ENOSYS before Linux 5.6; EXDEV or ELOOP for what `resolve` forbids.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    number = errno.EAGAIN
    # EAGAIN: something was renamed meanwhile and the kernel could not prove that ".." stays inside.
    for _ in range(_ATTEMPTS):
        found = _libc().syscall(_SYS_OPENAT2, dir_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), path)
