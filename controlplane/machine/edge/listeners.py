"""Who listens in a network namespace, read from /proc of a process in it; and which process is in a pod's. Decides
nothing, starts no process and enters no namespace."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator

from controlplane.machine.edge.cgroups import Hierarchies
from controlplane.machine.model import Listener

_LISTEN, _NO_PEER = "0A", "07"  # TCP_LISTEN, TCP_CLOSE (include/net/tcp_states.h): a UDP socket without a peer
_TABLES = (("tcp", 4, _LISTEN), ("tcp6", 6, _LISTEN), ("udp", 4, _NO_PEER), ("udp6", 6, _NO_PEER))
_MOST_ROWS = 20_000  # of one table: what listens comes first in those of TCP
_POD = re.compile(r"pod([0-9a-f][-_0-9a-f]{30,40})(\.slice)?$")
_MOST_FOLDERS = 20_000
_DEPTH = 4  # kubepods, quality of service, pod, container


def of_process(pid: int) -> tuple[Listener, ...] | None:
    """Everything that listens in the network namespace of that process; None when it cannot be read."""
    found: list[Listener] = []
    try:
        for table, version, state in _TABLES:
            for row in _rows(f"/proc/{pid}/net/{table}", missing_is_empty=version == 6):
                if row[3] == state:
                    host, _, port = row[1].rpartition(":")
                    found.append(Listener(table.rstrip("6"), address(version, host), int(port, 16)))
                elif state == _LISTEN:
                    break  # the kernel lists connections after all listeners
    except (OSError, ValueError, IndexError):
        return None
    return tuple(dict.fromkeys(found))


def pod_processes(trees: Hierarchies, cgroup: str) -> dict[str, int]:
    """A process of each pod below the node's cgroup, by the pod's UID as its cgroup has it."""
    for root in trees.roots:
        found: dict[str, int] = {}
        for folder in _pod_folders(root + cgroup):
            matched = _POD.search(os.path.basename(folder))
            pid = _first_process(folder)
            if matched and pid:
                found.setdefault(matched[1].replace("_", "-"), pid)
        if found:
            return found
    return {}


def address(version: int, text: str) -> str:
    """An address of /proc/net/tcp: words of 32 bits in the machine's order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET6 if version == 6 else socket.AF_INET, b"".join(words))


def _rows(path: str, *, missing_is_empty: bool) -> Iterator[list[str]]:
    # Without IPv6 the kernel has no such table, but a process that is gone has no table at all.
    if missing_is_empty and not os.path.exists(path) and os.path.exists(os.path.dirname(path)):
        return
    with open(path, encoding="ascii") as file:
        next(file, "")
        for _, line in zip(range(_MOST_ROWS), file, strict=False):
            yield line.split()


def _pod_folders(folder: str) -> Iterator[str]:
    """The pods' cgroups; what a pod nests below its own is not looked at."""
    pending, seen = [(folder, 0)], 0
    while pending and seen < _MOST_FOLDERS:
        current, depth = pending.pop()
        for name in _folders(current):
            seen += 1
            path = f"{current}/{name}"
            if _POD.search(name):
                yield path
            elif depth < _DEPTH and (depth or name.startswith("kubepods")):
                pending.append((path, depth + 1))


def _first_process(pod: str) -> int:
    for folder in (pod, *(f"{pod}/{name}" for name in _folders(pod))):
        try:
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                for line in file:
                    if int(line):
                        return int(line)
        except OSError:
            continue  # removed in the meantime
    return 0


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
