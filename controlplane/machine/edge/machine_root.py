"""Builds the file tree of a node and makes it the root of the calling process. Standard library only.

A node is a machine of its own: its `/` is a folder of the cluster. The operating system's folders in it are overlays
over those of the machine, so what is written there stays in the node; everything else (/home, /root, /srv, /tmp, /var)
is the node's own and empty at first. What a node must not change (programs, this project) is bound read-only.
Process 1 of a node calls enter() in new mount, PID, IPC, network and cgroup namespaces.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import shutil
import stat
import time
from typing import Any

from controlplane.machine.edge.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    MS_SHARED,
    attach,
    mount,
    pivot_root,
    unmount,
)
from nodelib import mountinfo

# Folders of an operating system, "nix" and "gnu" on systems that keep everything there.
_SYSTEM = ("usr", "etc", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu")
_OWN = {
    "boot": 0o755, "dev": 0o755, "home": 0o755, "media": 0o755, "mnt": 0o755, "proc": 0o555, "root": 0o700,
    "run": 0o755, "srv": 0o755, "sys": 0o555, "tmp": 0o1777, "var": 0o755, "var/cache": 0o755, "var/lib": 0o755,
    "var/log": 0o755, "var/spool": 0o755, "var/tmp": 0o1777,
}  # fmt: skip
_LINKS = {"var/run": "/run", "var/lock": "/run/lock"}
# No business of a node's pods either, beside what users of the machine may not read. A node's /etc/kubernetes
# is a folder of its own.
_SECRETS = (
    "shadow", "shadow-", "gshadow", "gshadow-", "ssh/ssh_host_*", "ssl/private", "krb5.keytab", "wireguard",
    "NetworkManager/system-connections", "kubernetes", "rancher", "docker", "sudoers", "sudoers.d",
)  # fmt: skip
_READ_AND_ENTER = stat.S_IROTH | stat.S_IXOTH
# Character devices that every node has if the machine does. The machine's disks are not among a node's devices; loop
# devices are, although the kernel has them only once.
_DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun", "kvm", "vhost-net", "vsock",
    "loop-control", "btrfs-control", "hwrng",
)  # fmt: skip
_DEVICE_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore", "ptmx": "pts/ptmx",
}  # fmt: skip
# Files of /proc by which a reboot of the node would be one of the machine, and a program of the node run outside of it.
_OF_THE_MACHINE = ("sysrq-trigger", "sys/kernel/core_pattern")
_LOOP_MAJOR, _LOOPS = 7, 64


def enter(spec: dict[str, Any]) -> None:
    """Build the tree and make it this process's root.

    `spec`: "folder" (the tree), "layers" (a folder for what overlays write), "mounts": [{"target", "source",
    "type": "bind"|"tmpfs", "readonly"}] in their order. Raises OSError.
    """
    root = spec["folder"]
    hierarchies = _cgroup_mounts()  # before anything hides them
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    os.makedirs(root, mode=0o755, exist_ok=True)
    mount(root, root, flags=MS_BIND)
    _folders(root)
    for name in _SYSTEM:
        _system(root, name, spec["layers"])
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in _OF_THE_MACHINE:
        _read_only(f"{root}/proc/{name}")
    # A sysfs shows the network namespace it was mounted in.
    mount("sysfs", f"{root}/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _cgroups(f"{root}/sys/fs/cgroup", hierarchies)
    _devices(f"{root}/dev")
    for entry in spec["mounts"]:
        _mount(root, entry)
    _boot_id(root)
    _whole_proc(f"{root}/run/proc")
    os.chdir(root)
    pivot_root(".", ".")
    unmount(".")
    os.chdir("/")
    mount("", "/", flags=MS_REC | MS_SHARED)


def _folders(root: str) -> None:
    for name, mode in _OWN.items():
        if _free(f"{root}/{name}"):
            os.mkdir(f"{root}/{name}")
            os.chmod(f"{root}/{name}", mode)
    for name, target in _LINKS.items():
        if not os.path.lexists(f"{root}/{name}"):
            os.symlink(target, f"{root}/{name}")


def _free(path: str, *, folder: bool = True) -> bool:
    """Whether nothing is there. What cannot stay is out of the way then: a pod may have left a link, which would lead
    out of the tree, a pipe, which would be waited for, or a file where a folder is wanted.

    Only links are removed; the rest gets another name, as it may be somebody's data.
    """
    try:
        there = os.lstat(path).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISLNK(there):
        os.unlink(path)
    elif stat.S_ISDIR(there) is folder and (folder or stat.S_ISREG(there)):
        return False
    else:
        os.rename(path, f"{path}.was-in-the-way-{time.time_ns()}")
    return True


def _system(root: str, name: str, layers: str) -> None:
    """One of the operating system's folders, or the link that it is where /usr was merged."""
    source, target = f"/{name}", f"{root}/{name}"
    if os.path.islink(source):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        if _free(target):
            os.mkdir(target, mode=0o755)
        _overlay(source, target, f"{layers}/{name}")
        if name == "etc":
            _hide_secrets(target, f"{layers}/{name}/upper")


def _overlay(lower: str, target: str, layers: str) -> None:
    for part in ("upper", "work"):
        os.makedirs(f"{layers}/{part}", mode=0o755, exist_ok=True)
    data = f"lowerdir={lower},upperdir={layers}/upper,workdir={layers}/work"
    try:
        mount("overlay", target, "overlay", data=data)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # An overlay cannot be the upper layer of another: what a container's file system is often made of.
        mount("tmpfs", layers, "tmpfs", MS_NODEV, "mode=755")
        for part in ("upper", "work"):
            os.mkdir(f"{layers}/{part}", mode=0o755)
        mount("overlay", target, "overlay", data=data)


def private(folder: str) -> list[str]:
    """What below a folder of this machine not every user of it may read: keys and passwords of whatever is installed.

    Of a folder that is closed only the folder itself is in the list.
    """
    found, pending = [], [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                wanted = _READ_AND_ENTER if is_folder else stat.S_IROTH
                if entry.stat(follow_symlinks=False).st_mode & wanted != wanted:
                    found.append(entry.path)
                elif is_folder:
                    pending.append(entry.path)
    return found


def _hide_secrets(etc: str, layer: str) -> None:
    """Remove the machine's own from the node's view; what the node has made since, in its own `layer`, stays.

    No link is followed: it leads out of the node's tree, to the very files. Nothing of the node runs yet that could
    change one meanwhile.
    """
    names = [path.removeprefix("/etc/") for path in private("/etc")]
    for pattern in _SECRETS:
        folder, _, name = pattern.rpartition("/")
        if os.path.isdir(f"/etc/{folder}"):
            names += [f"{folder}/{one}".lstrip("/") for one in fnmatch.filter(os.listdir(f"/etc/{folder}"), name)]
    for name in names:
        path = f"{etc}/{name}"
        if os.path.lexists(f"{layer}/{name}") or _leads_elsewhere(etc, name) or not os.path.lexists(path):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _leads_elsewhere(root: str, name: str) -> bool:
    """Whether a folder on the way to `name` is a link."""
    parts = name.split("/")[:-1]
    return any(os.path.islink("/".join((root, *parts[: end + 1]))) for end in range(len(parts)))


def _devices(folder: str) -> None:
    mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755")
    before = os.umask(0)
    try:
        for name in _DEVICES:
            if os.path.exists(f"/dev/{name}"):
                there = os.stat(f"/dev/{name}")
                os.makedirs(os.path.dirname(f"{folder}/{name}"), mode=0o755, exist_ok=True)
                os.mknod(f"{folder}/{name}", stat.S_IFCHR | stat.S_IMODE(there.st_mode), there.st_rdev)
        for number in range(_LOOPS if os.path.exists("/dev/loop-control") else 0):
            os.mknod(f"{folder}/loop{number}", stat.S_IFBLK | 0o660, os.makedev(_LOOP_MAJOR, number))
    finally:
        os.umask(before)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{folder}/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{folder}/{name}")
    mount("devpts", f"{folder}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", f"{folder}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("mqueue", f"{folder}/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _cgroup_mounts() -> list[tuple[str, str, str]]:
    """Of the machine: (path below /sys/fs/cgroup, file system, options that choose the v1 hierarchy)."""
    found = []
    for one in mountinfo.of_process():
        path = os.path.relpath(one.path, "/sys/fs/cgroup")
        if one.fs_type in ("cgroup", "cgroup2") and not path.startswith(".."):
            words = [word for word in one.options.split(",") if word not in ("rw", "ro") and one.fs_type == "cgroup"]
            found.append((path, one.fs_type, ",".join(words)))
    return found


def _cgroups(folder: str, hierarchies: list[tuple[str, str, str]]) -> None:
    """The cgroup file systems, in which the cgroup that this process was in at the start is the root."""
    if not any(path == "." for path, _, _ in hierarchies):
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755")
        for entry in os.scandir("/sys/fs/cgroup"):  # cpu -> cpu,cpuacct
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), f"{folder}/{entry.name}")
    for path, kind, options in hierarchies:
        target = os.path.normpath(f"{folder}/{path}")
        os.makedirs(target, exist_ok=True)
        mount(kind, target, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
        _leave_top(target)


def _leave_top(hierarchy: str) -> None:
    """Move to a cgroup below the node's: on v2 one with controllers for its children may not have processes."""
    leaf = f"{hierarchy}/system"
    os.makedirs(leaf, exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new v1 cpuset, which no process could join then
        if os.path.exists(f"{leaf}/{name}") and not os.path.exists(f"{leaf}/cgroup.controllers"):
            with open(f"{hierarchy}/{name}", encoding="ascii") as theirs, open(f"{leaf}/{name}", "w") as own:
                own.write(theirs.read())
    with open(f"{leaf}/cgroup.procs", "w", encoding="ascii") as file:
        file.write("0")


def _read_only(path: str) -> None:
    if os.path.exists(path):
        mount(path, path, flags=MS_BIND)
        mount("", path, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def _mount(root: str, entry: dict[str, Any]) -> None:
    folder = entry["type"] == "tmpfs" or os.path.isdir(entry["source"])
    target = _inside(root, entry["target"], folder=folder)
    if folder:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))
    if entry["type"] == "tmpfs":
        mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        return
    mount(entry["source"], target, flags=MS_BIND)
    if entry.get("readonly"):
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def add(entry: dict[str, Any], tree: int) -> None:
    """Attach a copy of a mount in the tree that is this process's root already. Raises OSError."""
    target = entry["target"]
    if not os.path.exists(target):
        os.makedirs(target)
    attach(tree, target)
    if entry.get("readonly"):
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def _boot_id(root: str) -> None:
    """Starting process 1 is a boot, so the node has a boot id of its own, as systemd-nspawn gives containers one."""
    with open("/proc/sys/kernel/random/uuid", encoding="ascii") as new, open(f"{root}/run/boot-id", "w") as file:
        file.write(new.read())
    mount(f"{root}/run/boot-id", f"{root}/proc/sys/kernel/random/boot_id", flags=MS_BIND)


def _whole_proc(path: str) -> None:
    """A second /proc, with nothing mounted on its files: who is root only in a user namespace, as in pods with
    `hostUsers: false`, may mount one of his own only where he could see a whole one (the kernel's mnt_already_visible).
    """
    os.makedirs(path, exist_ok=True)
    mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _inside(root: str, path: str, *, folder: bool) -> str:
    """Where `path` is to be mounted in the tree. No link of the tree is followed: it could lead out of it.

    A file that is a link (/etc/resolv.conf of systemd-resolved) is replaced by an empty one.
    """
    current, parts = root, path.strip("/").split("/")
    for number, part in enumerate(parts, 1):
        current = f"{current}/{part}"
        _free(current, folder=folder or number < len(parts))
    return current
