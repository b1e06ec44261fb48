"""fsGroup: change the group of a volume's files. Follows pkg/volume/volume_linux.go."""

from __future__ import annotations

import os
import stat

from nodelib.file_trees import Kind, Step, Walk

_READ_WRITE, _READ_ONLY, _EXECUTE = 0o660, 0o440, 0o110


def apply_fs_group(root: str, group: int, *, read_only: bool, policy: str = "Always") -> None:
    """Set group, group permissions and setgid of everything below `root`, deepest first. Links are never followed.

    Another pod may rename files and directories of the volume meanwhile: each is changed through a descriptor of its
    own, reached from its open directory. Upstream changes them by path, so that a directory swapped for a link leads
    it out of the volume. `policy` OnRootMismatch skips the walk when the root has the right group and mode. Raises
    OSError.
    """
    if policy == "OnRootMismatch" and _matches(root, group, read_only):
        return
    try:
        for step in Walk(root, crosses_mounts=True, follows_top=True):
            _change_step(step, group, read_only)
    except NotADirectoryError:
        return  # the volume is a single file


def _change_step(step: Step, group: int, read_only: bool) -> None:
    match step.kind:
        case Kind.FILE:
            try:
                handle = os.open(step.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=step.folder)
            except FileNotFoundError:
                return  # the container removed it meanwhile
            try:
                _change(handle, group, read_only)
            finally:
                os.close(handle)
        case Kind.LEAVE:
            _change(step.handle, group, read_only)
        case Kind.FAILED if step.error is not None:
            raise step.error


def _change(handle: int, group: int, read_only: bool) -> None:
    """Change the very file that is open: whatever its name stands for by now."""
    path = f"/proc/self/fd/{handle}"
    os.chown(path, -1, group)
    mode = os.fstat(handle).st_mode
    if stat.S_ISLNK(mode):
        return
    wanted = mode | (_READ_ONLY if read_only else _READ_WRITE)
    if stat.S_ISDIR(mode):
        wanted |= stat.S_ISGID | _EXECUTE
    os.chmod(path, stat.S_IMODE(wanted))


def _matches(root: str, group: int, read_only: bool) -> bool:
    found = os.stat(root)
    bits = (_READ_ONLY if read_only else _READ_WRITE) | _EXECUTE
    return found.st_gid == group and bool(found.st_mode & stat.S_ISGID) and found.st_mode & bits == bits
