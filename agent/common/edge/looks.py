"""What inotify would have reported, found by looking: for a node on which no inotify instance or watch is left."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

Entry = tuple[int, int, int]
"""Inode, size in bytes and time of the last change (ns) of a file."""


@dataclass(frozen=True, slots=True)
class Look:
    """`there`: device and inode of a directory, and `entries` what is in it by name; None: there is none.

    `holders`: the processes, but this one, that have a file open.
    """

    there: tuple[int, int] | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    holders: frozenset[int] = frozenset()


def directory(path: str) -> Look:
    """A directory as it is now. It does not follow links, and raises nothing."""
    entries = dict[str, Entry]()
    try:
        status = os.stat(path)
        with os.scandir(path) as found:
            for one in found:
                try:
                    seen = one.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entries[one.name] = seen.st_ino, seen.st_size, seen.st_mtime_ns
    except OSError:
        return Look()
    return Look((status.st_dev, status.st_ino), entries)


def open_file(path: str) -> Look:
    """Who has a file open now. An open that is closed again between two looks is not seen."""
    try:
        wanted = os.stat(path)
    except OSError:
        return Look()
    others = (pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid())
    holders = frozenset(int(pid) for pid in others if _holds(pid, os.path.basename(path), wanted))
    return Look((wanted.st_dev, wanted.st_ino), holders=holders)


def _holds(pid: str, name: str, wanted: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        for number in os.listdir(folder):
            # Only a file of that name is asked for its inode: one on a dead network disk would not answer.
            named = os.path.basename(os.readlink(f"{folder}/{number}")) == name
            if named and os.path.samestat(os.stat(f"{folder}/{number}"), wanted):
                return True
    except OSError:
        pass  # it has ended, or closed the file
    return False
