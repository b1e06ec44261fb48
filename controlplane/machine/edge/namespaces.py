"""Namespaces from outside: make them, list them, unmount them, run commands inside them."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nodelib import command, mountinfo
from nodelib.errors import Permanent

_MNT_DETACH = 2
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8")
_libc = ctypes.CDLL(None, use_errno=True)


async def make(spec: dict[str, Any], project: str) -> None:
    """Make or repair namespaces according to `spec` (see nsinit). Raises Permanent with the kernel's reason."""
    argv = [sys.executable, "-S", "-m", "controlplane.machine.edge.nsinit"]
    environment = {**os.environ, "PYTHONPATH": project}
    done = await command.run(argv, stdin=json.dumps(spec).encode(), env=environment, cwd="/", check=False, timeout=60)
    if done.returncode != 0:
        raise Permanent(
            done.stderr.decode(errors="replace").strip()[-800:],
            obj=f"namespaces of {spec['space']}",
            step="make namespaces",
            action="`./nodewright doctor` shows what this kernel lacks.",
        )


def mount_points() -> list[str]:
    """Targets of all mounts of this mount namespace, in mount order."""
    return [one.path for one in mountinfo.of_process()]


def unmount_below(directory: str) -> int:
    """Unmount everything at or below `directory`, the last mounted first. Returns how many mounts there were.

    A pod may have bound a tree of the host there, with what is mounted in it: that stays mounted at its own place.
    """
    found = [point for point in mount_points() if point == directory or point.startswith(directory + "/")]
    for point in found:
        _make_private(point)
    for point in reversed(found):
        if _libc.umount2(os.fsencode(point), _MNT_DETACH) != 0:
            number = ctypes.get_errno()
            raise Permanent(os.strerror(number), obj=point, step="unmount")
        _make_private(point)  # another mount may have been below it
    left = [point for point in mount_points() if point == directory or point.startswith(directory + "/")]
    if left:
        raise Permanent("still mounted", obj=", ".join(left), step="unmount", action="Run `down` again.")
    return len(found)


def _make_private(point: str) -> None:
    """Unmounting below `point` is not passed on to what it shows (mount_namespaces(7)). Fails if it is no mount."""
    _libc.mount(None, os.fsencode(point), None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)


def in_node(spaces: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` as a process of a node: `spaces` has the file of each kind of namespace."""
    words = [f"--{'mount' if kind == 'mnt' else kind}={path}" for kind, path in spaces.items()]
    return [shutil.which("nsenter") or "nsenter", *words, "--", *argv]


def alone_in_node(spaces: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """in_node() without the environment of this process.

    Who is root in the node can read that of every process there; an administrator's may hold passwords and tokens.
    """
    return ["env", "-i", *_ENVIRONMENT, *in_node(spaces, argv)]


def in_cgroups(folders: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The command line that first joins cgroups, given as folders of this machine: a process of a node belongs into
    the node's, where `down` finds it and the node's limits hold."""
    script = 'for folder in $0; do echo 0 > "$folder/cgroup.procs" || exit 1; done; exec "$@"'
    return ["/bin/sh", "-c", script, " ".join(folders), *argv]


def entered(net: str, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv`, a program of this machine, in a network namespace given as a file."""
    return in_node({"net": net}, argv)


def is_bound(path: str) -> bool:
    """Whether a namespace is bound to the file."""
    return path in mount_points()


def mount_points_in_use() -> frozenset[str]:
    """Every mount point of every mount namespace that has a process on this machine."""
    found: set[str] = set()
    seen: set[int] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            space = os.stat(f"/proc/{pid}/ns/mnt").st_ino
            if space in seen:
                continue
            seen.add(space)
            found.update(one.path for one in mountinfo.of_process(pid))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return frozenset(found)
