"""cgroups: where their file systems are mounted, and how to end all processes in one.

https://docs.kernel.org/admin-guide/cgroup-v1/index.html, https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodelib import mountinfo
from nodelib.backoff import Backoff
from nodelib.errors import Permanent
from nodelib.file_trees import Kind, Step, Walk
from nodelib.files import text_of
from nodelib.mountinfo import Mount


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mount points: by controller for v1 (named hierarchies as "name=x"), or the single v2 mount as "".

    `hybrid`: a v2 tree beside v1 controllers. Nothing is written there, but runc makes its cgroups in it, too.
    """

    version: int
    points: Mapping[str, str]
    hybrid: str = ""


def find_mounts(table: Iterable[Mount]) -> Mounts:
    """Choose the mount points from a mount table. Raises Permanent when there are none."""
    v1: dict[str, str] = {}
    v2 = ""
    for one in table:
        point = one.path
        if one.fs_type == "cgroup2" and (not v2 or len(point) < len(v2)):
            v2 = point
        elif one.fs_type == "cgroup":
            for name in one.options.split(","):
                if name not in ("rw", "ro", "xattr", "noprefix", "clone_children") and (
                    name not in v1 or len(point) < len(v1[name])
                ):
                    v1[name] = point
    if any(not name.startswith("name=") for name in v1):
        return Mounts(1, v1, v2)
    if v2:
        return Mounts(2, {"": v2})
    raise Permanent(
        "no cgroup file system is mounted",
        obj="/proc/self/mountinfo",
        step="find cgroups",
        action="Mount cgroup2 on /sys/fs/cgroup (a new mount of /sys, as by `ip netns exec`, hides it).",
    )


def mounts_here() -> Mounts:
    """The mount points in this process's mount namespace. Raises Permanent when there are none."""
    return find_mounts(mountinfo.of_process(containing=" - cgroup"))  # a node has thousands of others


_MOST_NAMED = 10  # processes, in an error
_FIRST_NAMESPACE = 0xEFFFFFFB  # inode of the machine's own cgroup namespace (PROC_CGROUP_INIT_INO, linux/proc_ns.h)


def is_part_of_machine() -> bool:
    """Whether the root of the cgroups here is not the machine's: this is a container, or a node of `up`.

    What that cgroup uses and may use is then what the "machine" uses and has; a real machine's root has no limits.
    """
    try:
        return os.stat("/proc/self/ns/cgroup").st_ino != _FIRST_NAMESPACE
    except OSError:
        return False


def cpus_here(mounts: Mounts | None = None) -> int:
    """Processors that everything below the root of the cgroups here may use at once: all, or as the root's quota says.

    A quota of 1.5 CPUs counts as 2: a part of one is more than none. `mounts`: None for those of this process.
    """
    online = os.cpu_count() or 1
    try:
        found = mounts or mounts_here()
        if found.version == 2:
            quota, period = _words(f"{found.points['']}/cpu.max", 2)
        else:
            (quota,) = _words(f"{found.points['cpu']}/cpu.cfs_quota_us", 1)
            (period,) = _words(f"{found.points['cpu']}/cpu.cfs_period_us", 1)
        if quota == "max" or int(quota) <= 0:
            return online
        return max(1, min(online, -(-int(quota) // int(period))))
    except (OSError, KeyError, ValueError, Permanent):  # the root of a real machine has no such files on v2
        return online


def _words(path: str, count: int) -> list[str]:
    with open(path, encoding="ascii") as file:
        found = file.read().split()
    if len(found) != count:
        raise ValueError(path)
    return found


class Group:
    """A cgroup that groups_below() found, by its open directory: valid until the next one is asked for."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.name = step.name

    def read(self, file: str) -> str:
        """Raises OSError."""
        with open(os.open(file, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._step.handle), encoding="ascii") as opened:
            return opened.read()

    def write(self, file: str, text: str) -> None:
        """Raises OSError, also for a file that the kernel does not offer."""
        handle = os.open(file, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._step.handle)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)

    def remove(self) -> None:
        """Raises OSError: EBUSY while a process or another cgroup is in it."""
        os.rmdir(self.name, dir_fd=self._step.folder)


def groups_below(folder: str) -> Iterator[Group]:
    """The cgroup whose directory is `folder` and all below it, the deepest first; none if it does not exist.

    A pod with a writable cgroup file system can nest cgroups as deep as the kernel lets it, with paths of any length.
    Raises OSError.
    """
    try:
        for step in Walk(folder):
            if step.kind is Kind.LEAVE:
                yield Group(step)
    except (FileNotFoundError, NotADirectoryError):
        return


class Doing(NamedTuple):
    """What a process does that was killed: its state as ps(1) shows it, and whether it is ending already."""

    state: str
    ending: bool

    @property
    def goes_on(self) -> bool:
        """It needs nothing but a processor to end."""
        return self.ending or self.state == "R"

    def __str__(self) -> str:
        return f"{self.state}, ending" if self.ending else self.state


_EXITING = 0x4  # PF_EXITING, include/linux/sched.h


def doing(stat: str) -> Doing:
    """Read /proc/PID/stat (proc_pid_stat(5)); a process without one is gone: "X"."""
    fields = stat.rpartition(")")[2].split()
    return Doing(fields[0], bool(int(fields[6]) & _EXITING)) if len(fields) > 6 else Doing("X", True)


class Undying(Exception):
    """Processes that SIGKILL did not end in time."""

    def __init__(self, found: Mapping[int, Doing]) -> None:
        self.pids = sorted(found)
        self.is_blocked = not any(one.goes_on for one in found.values())
        self.text = ", ".join(f"{pid} (state {found[pid]})" for pid in self.pids[:_MOST_NAMED])
        if more := len(self.pids[_MOST_NAMED:]):
            self.text += f" and {more} more"
        super().__init__(f"processes do not end: {self.text}")


def end_all(
    alive: Callable[[], set[int]],
    kill: Callable[[set[int]], None],
    *,
    timeout: float,
    patience: float = 0.0,
    look: Callable[[int], Doing] = lambda pid: doing(text_of(f"/proc/{pid}/stat")),
) -> int:
    """Kill processes until none is alive, including those that start meanwhile. Blocking.

    Returns how many there were. Raises Undying after `timeout` seconds; as long as one of them only needs a processor,
    which a busy machine gives it late, after `patience` seconds more.
    """
    seen: set[int] = set()
    deadline = time.monotonic() + timeout
    pause = Backoff(0.002, 0.1)
    while pids := alive():
        if (late := time.monotonic() - deadline) > 0:
            undying = Undying({pid: look(pid) for pid in pids})
            if undying.is_blocked or late > patience:
                raise undying
        seen |= pids
        kill(pids)
        time.sleep(pause.next())
    return len(seen)


def sigkill(pids: Iterable[int]) -> None:
    """Send SIGKILL to every process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
