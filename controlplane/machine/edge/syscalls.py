"""The system calls for mounts and namespaces that Python has no function for. Standard library only."""

from __future__ import annotations

import ctypes
import os

from nodelib import mountinfo

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20
_MNT_DETACH = 2
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on every architecture
_AT_FDCWD, _OPEN_TREE_CLONE, _MOVE_EMPTY_PATH = -100, 1, 4

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raises OSError with `what` unless a call of `libc` returned 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError with the call's arguments."""
    arguments = [text.encode() or None for text in (source, target, kind)]
    check(libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), f"mount {kind} {source} on {target}")


def unmount(target: str) -> None:
    """umount2(2), even if it is in use. Raises OSError."""
    check(libc.umount2(target.encode(), _MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2). Raises OSError."""
    check(libc.pivot_root(new.encode(), old.encode()), f"make {new} the root")


def copy_of_mount(path: str) -> int:
    """A descriptor of a bind mount of `path` that is not attached anywhere yet (open_tree(2)). Raises OSError."""
    found = libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), _OPEN_TREE_CLONE | os.O_CLOEXEC)
    check(min(found, 0), f"copy the mount of {path}")
    return int(found)


def attach(tree: int, target: str) -> None:
    """Attach what copy_of_mount() made, in the mount namespace that this process is in now. Raises OSError."""
    check(libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _MOVE_EMPTY_PATH), f"mount on {target}")


def mount_points(process: int | str = "self") -> set[str]:
    """Targets of all mounts of this namespace, or of another process's."""
    return {one.path for one in mountinfo.of_process(process)}
