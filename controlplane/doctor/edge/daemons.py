"""Finds the kubelet and the kube-proxy of a node among all processes, and reads what they read.

Both daemons are in the network namespace of their node, also a kube-proxy that runs as a pod. Files are read through
the root of the process that uses them, and only in the node's own mount namespace: what runs in a container may call
itself kubelet, and its files may be anything.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.doctor.model import FileFact
from nodelib import file_trees, files, listeners
from nodelib.openat2 import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, openat2

_MODULES = {"cli.node_main": "kubelet", "agent": "kubelet", "proxy": "kube-proxy"}
_COMMANDS = {"kubelet": "kubelet", "agent": "kubelet", "kube-proxy": "kube-proxy", "proxy": "kube-proxy"}
_UNITS = (
    "/etc/systemd/system/kubelet.service",
    "/etc/systemd/system/kubelet.service.d/*.conf",
    "/usr/lib/systemd/system/kubelet.service",
    "/usr/lib/systemd/system/kubelet.service.d/*.conf",
)
_MOST = 1 << 20  # bytes of a command line or a configuration
_LISTEN = "0A"


Namespace = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running kubelet or kube-proxy and its command line, without the program itself."""

    pid: int
    words: tuple[str, ...]

    def read(self, path: str) -> str:
        """A configuration file as the daemon sees it. Raises OSError, also for what is no file or much too long."""
        handle = files.readable(_opened(self.root, path))
        with open(handle, encoding="utf-8", errors="replace") as file:
            if os.fstat(handle).st_size > _MOST:
                raise OSError(errno.EFBIG, "is too long", path)
            return file.read(_MOST)

    def place(self, path: str) -> str:
        """The path by which this process reaches what the daemon sees at `path`."""
        return f"{self.root}{path}"

    def files(self, *patterns: str) -> tuple[str, ...]:
        """The files that match, as the daemon sees them."""
        found = (name for pattern in patterns for name in sorted(glob.glob(f"{self.root}{pattern}")))
        return tuple(dict.fromkeys(name.removeprefix(self.root) for name in found))

    def named(self, folder: str, ending: str) -> tuple[str, ...]:
        """The files below a folder whose names end so, as the daemon sees them."""
        try:
            here = _opened(self.root, folder)
        except OSError:
            return ()
        try:
            way = f"/proc/self/fd/{here}"
            return tuple(f"{folder}{one.removeprefix(way)}" for one in file_trees.named(way, ending))
        finally:
            os.close(here)

    def fact(self, path: str) -> FileFact:
        """Mode and owner of a file as the daemon sees it."""
        try:
            here = _opened(self.root, path)
        except OSError as error:
            return FileFact(path, problem=error.strerror or str(error))
        try:
            return file_fact(here, path)
        finally:
            os.close(here)

    @property
    def root(self) -> str:
        return f"/proc/{self.pid}/root"


@dataclass(frozen=True, slots=True)
class Daemons:
    """What runs on a node; None for what does not. `pod_proxy`: a kube-proxy in a container."""

    kubelet: Daemon | None
    proxy: Daemon | None
    pod_proxy: Daemon | None


def namespace(path: str) -> Namespace:
    """The identity of a namespace, by one of its files. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def daemons(net: Namespace, mnt: Namespace) -> Daemons:
    """The kubelet and the kube-proxy of the node with these namespaces."""
    found: dict[str, Daemon] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                argv = file.read(_MOST).decode(errors="replace").rstrip("\0").split("\0")
            kind, words = _kind(argv)
            if kind and namespace(f"/proc/{pid}/ns/net") == net:
                own = namespace(f"/proc/{pid}/ns/mnt") == mnt
                found.setdefault(kind if own else f"{kind} in a pod", Daemon(pid, tuple(words)))
        except OSError:
            continue  # it has exited in the meantime
    return Daemons(found.get("kubelet"), found.get("kube-proxy"), found.get("kube-proxy in a pod"))


def _kind(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Which of the two a command line starts, "" for neither, and its arguments."""
    name = os.path.basename(argv[0]) if argv else ""
    if name in ("kubelet", "kube-proxy"):
        kind, words = name, list(argv[1:])
    elif name.startswith("python") and "-m" in argv[:-1]:
        at = argv.index("-m") + 1
        kind, words = _MODULES.get(argv[at], ""), list(argv[at + 1 :])
        if argv[at] == "cli" and words:
            kind, words = _COMMANDS.get(words[0], ""), words[1:]
    else:
        return "", []
    # Not `kubelet --version`, nor a child that was forked for something else.
    return (
        (kind, words) if any(word.startswith(("--config", "--kubeconfig", "--master")) for word in words) else ("", [])
    )


def unit_files(kubelet: Daemon) -> tuple[str, ...]:
    """The unit files of kubelet.service that the kubelet's own machine has."""
    return kubelet.files(*_UNITS)


def file_fact(real: str | int, shown: str) -> FileFact:
    """Mode and owner of the file at `real`, or of that descriptor, under the name `shown`."""
    try:
        found = os.stat(real)
    except OSError as error:
        return FileFact(shown, problem=error.strerror or str(error))
    return FileFact(shown, found.st_mode & 0o7777, found.st_uid, found.st_gid)


def _opened(root: str, path: str) -> int:
    """A descriptor (O_PATH) of what is at `path` below `root`, where every link is resolved.

    The kernel itself would resolve an absolute one, also of a folder on the way, from the root of this machine.
    """
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return openat2(top, path.lstrip("/") or ".", os.O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(top)


def listening(daemon: Daemon, port: int) -> tuple[str, ...]:
    """Addresses (host:port) on which the daemon itself listens at this port."""
    inodes = _sockets(daemon.pid)
    rows = [(4, row) for row in _rows(f"/proc/{daemon.pid}/net/tcp")]
    rows += [(6, row) for row in _rows(f"/proc/{daemon.pid}/net/tcp6")]
    found = []
    for family, row in rows:
        host, _, number = row[1].rpartition(":")
        if row[3] == _LISTEN and int(number, 16) == port and row[9] in inodes:
            address = listeners.address(family, host)
            found.append(f"[{address}]:{port}" if family == 6 else f"{address}:{port}")
    return tuple(found)


def _rows(path: str) -> Iterable[list[str]]:
    try:
        with open(path, encoding="ascii") as file:
            return [line.split() for line in file.read().splitlines()[1:]]
    except OSError:
        return []


def _sockets(pid: int) -> frozenset[str]:
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return frozenset(found)
