"""Who listens in a network namespace, read from /proc of a process in it; and which process is in a pod's. Decides
nothing, starts no process and enters no namespace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from controlplane.machine.edge.cgroups import Hierarchies
from controlplane.machine.model import Listener
from nodelib.listeners import TABLES, listening

_MOST_ROWS = 20_000  # of one table: what listens comes first in those of TCP
_POD = re.compile(r"pod([0-9a-f][-_0-9a-f]{30,40})(\.slice)?$")
_MOST_FOLDERS = 20_000
_DEPTH = 4  # kubepods, quality of service, pod, container


def of_process(pid: int) -> tuple[Listener, ...] | None:
    """Everything that listens in the network namespace of that process; None when it cannot be read."""
    folder, found = f"/proc/{pid}/net", list[Listener]()
    try:
        for table in TABLES:
            # Without IPv6 the kernel has no such table, but a process that is gone has no table at all.
            if table.endswith("6") and not os.path.exists(f"{folder}/{table}") and os.path.exists(folder):
                continue
            protocol = table.rstrip("6")
            found += [Listener(protocol, host, port) for host, port in listening(folder, table, _MOST_ROWS)]
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
