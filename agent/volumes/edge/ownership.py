"""fsGroup: change the group of a volume's files. Follows pkg/volume/volume_linux.go."""

from __future__ import annotations

import os
import stat

_READ_WRITE, _READ_ONLY, _EXECUTE = 0o660, 0o440, 0o110


def apply_fs_group(root: str, group: int, *, read_only: bool, policy: str = "Always") -> None:
    """Set group, group permissions and setgid of everything below `root`, deepest first. Links are never followed.

    `policy` OnRootMismatch skips the walk when the root has the right group and mode. Raises OSError.
    """
    if policy == "OnRootMismatch" and _matches(root, group, read_only):
        return
    for directory, names, files in os.walk(root, topdown=False, followlinks=False):
        for name in (*files, *names):
            path = os.path.join(directory, name)
            if name in files or os.path.islink(path):
                _change(path, group, read_only)
        _change(directory, group, read_only)


def _change(path: str, group: int, read_only: bool) -> None:
    try:
        os.lchown(path, -1, group)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return
        wanted = mode | (_READ_ONLY if read_only else _READ_WRITE)
        if stat.S_ISDIR(mode):
            wanted |= stat.S_ISGID | _EXECUTE
        # A container may replace the file by a link meanwhile: change the very file that was checked.
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_IFMT(os.fstat(handle).st_mode) == stat.S_IFMT(mode):
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(wanted))
        finally:
            os.close(handle)
    except FileNotFoundError:
        return  # the container removed it meanwhile


def _matches(root: str, group: int, read_only: bool) -> bool:
    found = os.stat(root)
    bits = (_READ_ONLY if read_only else _READ_WRITE) | _EXECUTE
    return found.st_gid == group and bool(found.st_mode & stat.S_ISGID) and found.st_mode & bits == bits
