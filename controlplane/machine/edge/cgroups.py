"""The cgroups of a cluster: made in every mounted hierarchy, emptied and removed by `down`.

On v1 that is one directory per controller (and the named systemd hierarchy), on v2 the single tree, on a hybrid machine
both: a process is found in whichever tree a runtime left it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from nodelib.cgroups import Group, Undying, end_all, groups_below, mounts_here, sigkill
from nodelib.errors import Temporary
from nodelib.files import text_of

_PERIOD = 100_000  # microseconds, the kernel's own
_FOR_A_PROCESSOR = 180.0  # seconds that killed processes may wait for one
_BLOCKED = "They are blocked in the kernel (`ps -o pid,stat,wchan,cmd`); run the command again once they are gone."
_BUSY = "They were killed, and the machine is too busy to let them end; run the command again when it is less so."
_V2_WANTED = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


@dataclass(frozen=True)
class Hierarchies:
    """Mount points of the cgroup file systems: `v1` controllers, and `v2` ("" if not mounted)."""

    v1: tuple[str, ...]
    v2: str

    @cached_property
    def roots(self) -> tuple[str, ...]:
        return (*self.v1, self.v2) if self.v2 else self.v1

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Folders beside the v1 trees with no hierarchy mounted. Nothing is made in them, but they are cleaned up too:
        containerd takes them for hierarchies and makes its paths there (containerd/cgroups, cgroup1/hugetlb.go)."""
        found: set[str] = set()
        for parent in {os.path.dirname(path) for path in self.v1}:
            with os.scandir(parent) as entries:
                found |= {entry.path for entry in entries if entry.is_dir(follow_symlinks=False)}
        return tuple(sorted(found - {*self.v1, self.v2}))

    @property
    def mode(self) -> str:
        """v1, v2 or hybrid."""
        return "v2" if not self.v1 else "hybrid" if self.v2 else "v1"

    def controllers(self) -> set[str]:
        """Names of the usable controllers of all trees."""
        names = {part for path in self.v1 for part in os.path.basename(path).split(",")}
        if self.v2:
            with open(f"{self.v2}/cgroup.controllers", encoding="ascii") as file:
                names |= set(file.read().split())
        return names


def hierarchies() -> Hierarchies:
    """The hierarchies mounted here. Raises Permanent if there are none."""
    found = mounts_here()
    if found.version == 2:
        return Hierarchies((), found.points[""])
    return Hierarchies(tuple(dict.fromkeys(found.points.values())), found.hybrid)


def ensure(trees: Hierarchies, path: str) -> list[str]:
    """Make the cgroup `path` (absolute) in every hierarchy. Returns the directories."""
    made = []
    for root in trees.roots:
        current = root
        for part in path.strip("/").split("/"):
            if root == trees.v2 and not trees.v1:
                _delegate(current)
            current = f"{current}/{part}"
            os.makedirs(current, exist_ok=True)
            _inherit_cpuset(current)
        made.append(current)
    return made


def _delegate(directory: str) -> None:
    with open(f"{directory}/cgroup.controllers", encoding="ascii") as file:
        there = set(file.read().split())
    with open(f"{directory}/cgroup.subtree_control", encoding="ascii") as file:
        enabled = set(file.read().split())
    for name in (name for name in _V2_WANTED if name in there - enabled):
        with open(f"{directory}/cgroup.subtree_control", "w", encoding="ascii") as file:
            file.write(f"+{name}")


def _inherit_cpuset(directory: str) -> None:
    # A new v1 cpuset is empty, so no process could join it (cpusets.rst, section 1.9).
    for name in ("cpuset.cpus", "cpuset.mems"):
        path = f"{directory}/{name}"
        if not os.path.exists(path) or os.path.exists(f"{directory}/cgroup.controllers"):
            continue
        with open(path, encoding="ascii") as file:
            if file.read().strip():
                continue
        with open(f"{os.path.dirname(directory)}/{name}", encoding="ascii") as file:
            value = file.read()
        with open(path, "w", encoding="ascii") as file:
            file.write(value)


def limit(directories: Iterable[str], *, cpus: int, memory: int) -> None:
    """Bound what everything in the cgroup uses together; 0: no bound. `memory` in bytes."""
    for directory in directories:
        for name, text in (
            ("cpu.cfs_quota_us", str(cpus * _PERIOD) if cpus else "-1"),
            ("cpu.max", f"{cpus * _PERIOD} {_PERIOD}" if cpus else f"max {_PERIOD}"),
            ("memory.limit_in_bytes", str(memory) if memory else "-1"),
            ("memory.max", str(memory) if memory else "max"),
        ):
            if os.path.exists(f"{directory}/{name}"):
                with open(f"{directory}/{name}", "w", encoding="ascii") as file:
                    file.write(text)


def count_block_io(directories: Iterable[str], path: str) -> None:
    """Make the kernel count the block I/O of cgroups on the device of `path`, where it does not do so by itself.

    On v1 it counts nothing on a device until some cgroup has a limit there (block/blk-throttle.c: the policy is made
    with the first limit). The limit set here is no restriction; the counting goes on until the machine restarts.
    """
    disk = _whole_disk(os.stat(path).st_dev)
    for file_name in (f"{directory}/blkio.throttle.read_bps_device" for directory in directories):
        if disk and os.path.exists(file_name):
            with open(file_name, "w", encoding="ascii") as file:
                file.write(f"{disk} {(1 << 63) - 1}")


def _whole_disk(device: int) -> str:
    """MAJOR:MINOR of the disk that a device is or belongs to, "" if it is no block device (overlay, btrfs)."""
    own = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    # The folder of a partition is in the folder of its disk.
    return text_of(f"{own}/../dev" if os.path.exists(f"{own}/partition") else f"{own}/dev").strip()


def members(trees: Hierarchies, path: str) -> set[int]:
    """Every process in or below the cgroup, in any hierarchy."""
    pids: set[int] = set()
    for group in _below(trees, path):
        try:
            pids.update(int(line) for line in group.read("cgroup.procs").split())
        except OSError:
            continue  # removed in the meantime, or a threaded v2 cgroup, whose processes its parent lists
    return pids - {0}


def kill_all(trees: Hierarchies, path: str, *, timeout: float = 20) -> int:
    """SIGKILL everything in or below the cgroup and wait until it is gone. Returns how many processes there were.

    Raises Temporary with the pids and states of those that are still alive after `timeout` seconds, or after
    _FOR_A_PROCESSOR more if they need only that to end.
    """

    def kill(pids: set[int]) -> None:
        _thaw(trees, path)
        sigkill(pids)

    try:
        return end_all(lambda: members(trees, path), kill, timeout=timeout, patience=_FOR_A_PROCESSOR)
    except Undying as error:
        raise Temporary(
            str(error),
            obj=path,
            step="kill the processes of the cgroup",
            action=_BLOCKED if error.is_blocked else _BUSY,
        ) from error


def _thaw(trees: Hierarchies, path: str) -> None:
    for group in _below(trees, path):
        for name, thawed in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            with contextlib.suppress(FileNotFoundError):
                group.write(name, thawed)


def remove(trees: Hierarchies, path: str, *, timeout: float = 10) -> None:
    """Remove the cgroup and everything below it. Raises Temporary if one stays busy."""
    deadline = time.monotonic() + timeout
    for group in _below(trees, path):
        while True:
            try:
                group.remove()
            except FileNotFoundError:
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Temporary(str(error), obj=path, step="remove the cgroup") from error
                time.sleep(0.01)
            else:
                break


def remove_if_empty(trees: Hierarchies, path: str) -> None:
    """Remove a cgroup that has no children; one that is in use stays."""
    for root in (*trees.roots, *trees.beside):
        try:
            os.rmdir(root + path)
        except OSError:
            continue


def _below(trees: Hierarchies, path: str) -> Iterator[Group]:
    for root in (*trees.roots, *trees.beside):
        yield from groups_below(root + path)
