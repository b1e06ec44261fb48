"""Makes or repairs the namespaces of one node. A program of its own, run by `up` with JSON on its standard input.

Only a whole process can enter a mount or UTS namespace, so no thread of the command line can do this. It uses nothing
but the standard library and is started with -S: `up` runs it once for each node, and 30 ms matter there.

The namespaces are kept as bind mounts in `dir` and so outlive every process. `dir` must be a private mount, because a
mount namespace cannot be bound below a shared one. A namespace that a living process still has can be bound again.
Input: {"dir", "space", "kinds": ["net","uts","mnt"], "hostname", "sysctls": {path: value},
"mounts": [{"target", "source", "type": "bind"|"rbind"|"tmpfs"|"sysfs", "flags"}], "holder": pid or 0}.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import Any, NoReturn

_CLONE = {"net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE, _MS_SHARED = 0x1000, 0x2000, 0x4000, 1 << 18, 1 << 20
_MARKER = "/run/nodewright/furnished"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError with the call's arguments."""
    arguments = [text.encode() or None for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None), f"mount {kind} {source} on {target}")


def setns(path: str, kind: str) -> None:
    """Enter the namespace bound to `path`. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(handle, _CLONE[kind]), f"enter {path}")
    finally:
        os.close(handle)


def mount_points() -> set[str]:
    """Targets of all mounts of this namespace."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return {line.split()[4].encode().decode("unicode_escape") for line in file}


def ensure_private_dir(path: str) -> None:
    """Make `path` a private mount of its own."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    if path not in mount_points():
        mount(path, path, flags=_MS_BIND)
    mount("", path, flags=_MS_PRIVATE)


def missing_kinds(spec: dict[str, Any]) -> list[str]:
    """Kinds of namespace that are not bound. Those that the holder process still has are bound again first."""
    points = mount_points()
    missing = []
    for kind in spec["kinds"]:
        path = f"{spec['dir']}/{spec['space']}.{kind}"
        if path in points:
            continue
        with open(path, "a", encoding="ascii"):
            pass
        if spec.get("holder"):
            mount(f"/proc/{spec['holder']}/ns/{kind}", path, flags=_MS_BIND)
        else:
            missing.append(kind)
    return missing


def create(spec: dict[str, Any], kinds: list[str]) -> None:
    """Make new namespaces of `kinds` and bind them to their files; this process stays outside of them.

    A mount namespace can only be bound inside one with a smaller number (mnt_ns_loop() in fs/namespace.c prevents
    loops). Since Linux 6.18 each CPU takes numbers from a batch of its own (kernel/nstree.c), so a new namespace may
    have the smaller number. It does not on the CPU where our own namespace was made, so every CPU is tried.
    """
    cpus = sorted(os.sched_getaffinity(0))
    for number, cpu in enumerate(cpus, 1):
        try:
            _create_on(cpu, spec, kinds)
            return
        except OSError as error:
            if error.errno != errno.EINVAL or number == len(cpus):
                raise


def _create_on(cpu: int, spec: dict[str, Any], kinds: list[str]) -> None:
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(cpu, kinds, ready[1], go)
    os.close(ready[1])
    try:
        if not os.read(ready[0], 1):
            raise OSError(f"cannot make the namespaces {kinds} of {spec['space']}")
        for kind in sorted(kinds, key=lambda kind: kind != "mnt"):  # first the one that may fail
            mount(f"/proc/{child}/ns/{kind}", f"{spec['dir']}/{spec['space']}.{kind}", flags=_MS_BIND)
    finally:
        for handle in (ready[0], *go):
            os.close(handle)
        os.waitpid(child, 0)


def _be_child(cpu: int, kinds: list[str], ready: int, go: tuple[int, int]) -> NoReturn:
    """Make the namespaces, report it, and keep them until the parent has bound them and closed its pipe."""
    try:
        os.sched_setaffinity(0, {cpu})
        flags = 0
        for kind in kinds:
            flags |= _CLONE[kind]
        _check(_libc.unshare(flags), f"unshare {','.join(kinds)}")
        os.write(ready, b"1")
        os.close(go[1])
        os.read(go[0], 1)
    except OSError as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(0)


def set_up(spec: dict[str, Any], new: list[str]) -> None:
    """Enter the namespaces and set mounts, hostname and sysctls as the specification says."""
    for kind in spec["kinds"]:
        if kind != "mnt":
            setns(f"{spec['dir']}/{spec['space']}.{kind}", kind)
    if "mnt" in spec["kinds"]:
        setns(f"{spec['dir']}/{spec['space']}.mnt", "mnt")
        if "mnt" in new:
            mount("", "/", flags=_MS_REC | _MS_PRIVATE)
        _mounts(spec["mounts"])
        mount("", "/", flags=_MS_REC | _MS_SHARED)
    if "uts" in spec["kinds"]:
        name = spec["hostname"].encode()
        _check(_libc.sethostname(name, len(name)), "sethostname")
    for name, value in spec["sysctls"].items():
        path = f"/proc/sys/{name}"
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write(value)


def _mounts(wanted: list[dict[str, str]]) -> None:
    # The marker is in the node's own /run. Without it an earlier run was interrupted, and everything is mounted again.
    complete = os.path.exists(_MARKER)
    present = mount_points()
    for entry in wanted:
        target = os.path.realpath(entry["target"])
        if not complete or target not in present:
            _mount_one(entry, target)
    os.makedirs(os.path.dirname(_MARKER), exist_ok=True)
    with open(_MARKER, "a", encoding="ascii"):
        pass


def _mount_one(entry: dict[str, str], target: str) -> None:
    kind = entry["type"]
    if kind == "sysfs":
        _own_sysfs(target)
        return
    if kind == "tmpfs":
        os.makedirs(target, exist_ok=True)
        mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
        return
    if os.path.isdir(entry["source"]):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="ascii"):
            pass
    mount(entry["source"], target, flags=_MS_BIND | (_MS_REC if kind == "rbind" else 0))


def _own_sysfs(target: str) -> None:
    # A sysfs shows the network namespace it was mounted in; the host's cgroup tree must stay visible below it.
    staging = "/run/sysfs"
    os.makedirs(staging, exist_ok=True)
    mount("sysfs", staging, "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    mount("/sys/fs/cgroup", f"{staging}/fs/cgroup", flags=_MS_BIND | _MS_REC)
    mount(staging, target, flags=_MS_MOVE)
    os.rmdir(staging)


def main() -> int:
    """Exit status 1 and one line on stderr when the kernel refuses."""
    spec = json.load(sys.stdin)
    try:
        ensure_private_dir(spec["dir"])
        new = missing_kinds(spec)
        if new:
            create(spec, new)
        set_up(spec, new)
    except OSError as error:
        print(f"{spec['space']}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
