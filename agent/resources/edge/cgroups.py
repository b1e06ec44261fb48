"""The cgroup file systems of this machine: create, write, kill, remove. Decides nothing.

v1 has one tree for each controller (in hybrid mode as well, where the v1 controllers are used and all mounts stay as
they are). v2 has one tree, and controllers are enabled for children by cgroup.subtree_control.
https://docs.kernel.org/admin-guide/cgroup-v1/index.html, https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator

from agent.resources.edge.errors import CgroupError, failure
from agent.resources.edge.files import Files, FoundGroup, KernelFiles
from nodelib.backoff import Backoff
from nodelib.cgroups import Mounts, Undying, end_all, mounts_here, sigkill
from nodelib.errors import Permanent

Write = tuple[str, str, str]

_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "hugetlb", "pids", "io")
_KILL_TIMEOUT = 10.0  # seconds after which processes that survive SIGKILL are reported
_RMDIR_ATTEMPTS = 6


class CgroupTree:
    """All trees as one: a cgroup exists in each of them. Blocking work runs in threads. `kill_timeout` in seconds."""

    def __init__(self, mounts: Mounts, files: Files | None = None, kill_timeout: float = _KILL_TIMEOUT) -> None:
        self.version = mounts.version
        self._kill_timeout = kill_timeout
        self._files = files or KernelFiles()
        self._points = dict(mounts.points)
        self._tops = sorted(set(mounts.points.values()))
        self._all_tops = [*self._tops, mounts.hybrid] if mounts.hybrid else self._tops
        self.controllers = self._available()

    @classmethod
    def detect(cls) -> CgroupTree:
        return cls(mounts_here())

    def folder(self, path: str, controller: str) -> str:
        """The file system path of a cgroup in the tree of one controller."""
        point = self._points[""] if self.version == 2 else self._points[controller]
        return point + path

    async def make(self, path: str, writes: Iterable[Write]) -> None:
        """Create the cgroup and its ancestors in every tree, with all controllers, and write(); idempotent."""
        wanted = self._supported(writes)
        await asyncio.to_thread(self._make, _checked(path), wanted)

    async def write(self, path: str, writes: Iterable[Write]) -> None:
        """Write (controller, file, text) in order. Writes for missing controllers are skipped."""
        await asyncio.to_thread(self._write_all, _checked(path), self._supported(writes))

    async def read(self, path: str, controller: str, file: str) -> str:
        return (await self.read_all(path, [(controller, file)]))[file]

    async def read_all(self, path: str, files: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Texts by file name of (controller, file). Files of missing controllers are left out."""
        wanted = {file: f"{self.folder(path, one)}/{file}" for one, file in files if one in self.controllers}
        return await asyncio.to_thread(lambda: {file: self._read(place).strip() for file, place in wanted.items()})

    async def children(self, path: str) -> frozenset[str]:
        """Names of the cgroups directly below `path` in any of the trees; empty when it does not exist."""
        return await asyncio.to_thread(self._children, path)

    async def exists(self, path: str) -> bool:
        """Whether the cgroup exists in every tree."""
        return all(self._files.exists(top + path) for top in self._tops)

    async def lacks(self, path: str, controllers: Iterable[str]) -> tuple[str, ...]:
        """Those of these controllers in whose tree the cgroup does not exist."""
        wanted = sorted(self.controllers.intersection(controllers))
        return tuple(name for name in wanted if not self._files.exists(self.folder(_checked(path), name)))

    async def pids(self, path: str) -> frozenset[int]:
        """Processes in the cgroup and below it."""
        return await asyncio.to_thread(self._pids, path)

    async def attach(self, path: str, pids: Iterable[int]) -> None:
        """Move processes into the cgroup, in every tree; those that have ended are none. Raises CgroupError."""
        await asyncio.to_thread(self._attach, _checked(path), frozenset(pids))

    async def movable(self, path: str) -> frozenset[int]:
        """The processes of this cgroup itself, without process 1 and the kernel's threads; one not in "devices" (v1)
        is not seen, as upstream. Raises CgroupError."""
        place = self.folder(path.rstrip("/"), "devices" if "devices" in self._points else next(iter(self._points)))
        found = await asyncio.to_thread(self._read, f"{place}/cgroup.procs")
        return frozenset(pid for pid in map(int, found.split()) if pid > 1 and _has_program(pid))

    async def remove(self, path: str) -> None:
        """Kill all processes in the cgroup and remove it with its children; idempotent.

        Raises CgroupError when it stays busy.
        """
        await asyncio.to_thread(self._remove, _checked(path))

    async def end(self, path: str, word: str) -> None:
        """Kill what is in the child cgroups whose name contains `word`. Their quota, and meanwhile that of `path`, is
        lifted, so that it takes seconds however many there are. Raises CgroupError."""
        await asyncio.to_thread(self._end, _checked(path), word)

    @property
    def _quota(self) -> tuple[str, str]:
        """The file of the CPU quota, and what it says when there is none."""
        return ("cpu.max", "max") if self.version == 2 else ("cpu.cfs_quota_us", "-1")

    def _available(self) -> frozenset[str]:
        if self.version == 1:
            return frozenset(self._points)
        offered = self._read(f"{self._points['']}/cgroup.controllers").split()
        return frozenset(name for name in _V2_CONTROLLERS if name in offered)

    def _supported(self, writes: Iterable[Write]) -> list[Write]:
        return [entry for entry in writes if entry[0] in self.controllers]

    def _make(self, path: str, writes: list[Write]) -> None:
        self._create(path)
        self._write_all(path, writes)

    def _create(self, path: str) -> None:
        parts = [part for part in path.split("/") if part]
        for top in self._tops:
            for depth, _ in enumerate(parts):
                parent = top + "".join(f"/{part}" for part in parts[:depth])
                if self.version == 2:
                    self._enable_controllers(parent)
                self._mkdir(f"{parent}/{parts[depth]}")
                if top == self._points.get("cpuset"):
                    self._inherit_cpuset(parent, f"{parent}/{parts[depth]}")

    def _mkdir(self, folder: str) -> None:
        try:
            self._files.mkdir(folder)
        except FileExistsError:
            return
        except OSError as error:
            hint = "Check that the agent is root and the mount is writable."
            raise failure(folder, "make cgroup", error, hint) from error

    def _enable_controllers(self, parent: str) -> None:
        offered = set(self._read(f"{parent}/cgroup.controllers").split()) & self.controllers
        missing = offered - set(self._read(f"{parent}/cgroup.subtree_control").split())
        if not missing:
            return
        try:
            self._files.write(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))
        except OSError as error:
            hint = "Move the processes of this cgroup into a child of it: v2 allows processes in leaves only."
            raise failure(parent, f"enable {', '.join(sorted(missing))}", error, hint) from error

    def _inherit_cpuset(self, parent: str, folder: str) -> None:
        """A new v1 cpuset is empty, and no process can run in it before it has CPUs and memory nodes."""
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not self._read(f"{folder}/{file}").strip():
                self._write(f"{folder}/{file}", self._read(f"{parent}/{file}").strip())

    def _write_all(self, path: str, writes: list[Write]) -> None:
        for controller, file, text in writes:
            self._write(f"{self.folder(path, controller)}/{file}", text)

    def _write(self, file: str, text: str) -> None:
        try:
            self._files.write(file, text)
        except OSError as error:
            if error.errno == errno.EBUSY and "memory" in file:
                hint = "More memory than that is in use and cannot be reclaimed; the agent tries again."
            else:
                hint = "Check that the value fits the limits of the cgroups above it."
            raise failure(file, f"write {text}", error, hint) from error

    def _read(self, file: str) -> str:
        try:
            return self._files.read(file)
        except OSError as error:
            raise failure(file, "read", error, "Check that the cgroup file systems are mounted.") from error

    def _children(self, path: str) -> frozenset[str]:
        found: set[str] = set()
        for top in self._all_tops:
            with contextlib.suppress(FileNotFoundError):
                found.update(self._files.folders(top + path))
        return frozenset(found)

    def _attach(self, path: str, pids: frozenset[int]) -> None:
        for top in self._tops:
            for pid in sorted(pids):
                try:
                    self._files.write(f"{top}{path}/cgroup.procs", str(pid))
                except ProcessLookupError:
                    continue
                except OSError as error:
                    hint = "Check that the cgroup may hold processes: on v2 only one without controllers for children."
                    raise failure(f"{top}{path}", f"move process {pid}", error, hint) from error

    def _pids(self, path: str) -> frozenset[int]:
        found: set[int] = set()
        for top in self._all_tops:
            for group in self._below(top + path):
                with contextlib.suppress(OSError):  # gone, or a threaded v2 cgroup, whose processes its parent lists
                    found.update(int(word) for word in group.read("cgroup.procs").split())
        return frozenset(found)

    def _below(self, folder: str) -> Iterator[FoundGroup]:
        try:
            yield from self._files.below(folder)
        except OSError as error:
            raise failure(folder, "list cgroups", error, "The agent tries again.") from error

    def _remove(self, path: str) -> None:
        if not any(self._files.exists(top + path) for top in self._all_tops):
            return
        self._kill(path)
        for top in self._all_tops:
            for group in self._below(top + path):
                self._rmdir(top + path, group)

    def _end(self, path: str, word: str) -> None:
        name, none = self._quota
        file = f"{self.folder(path, 'cpu')}/{name}" if "cpu" in self.controllers else ""
        quota = self._read(file).strip() if file else ""
        try:
            if quota:
                self._files.write(file, none)
            for leaf in (name for name in self._children(path) if word in name):
                self._kill(f"{path}/{leaf}")
        except OSError as error:
            raise failure(path, "end a container", error, "The agent tries again.") from error
        finally:
            if quota:
                with contextlib.suppress(OSError):
                    self._files.write(file, quota)

    def _kill(self, path: str) -> None:
        def alive() -> set[int]:
            return {pid for pid in self._pids(path) if pid > 1 and pid != os.getpid()}

        def kill(pids: set[int]) -> None:
            self._freeze(path, "FROZEN")  # what cannot run cannot fork
            self._signal(path, pids)
            self._lift_quota(path)
            self._freeze(path, "THAWED")  # a process frozen by a v1 freezer receives no signal, not even SIGKILL

        try:
            end_all(alive, kill, timeout=self._kill_timeout)
        except Undying as error:
            raise CgroupError(
                f"processes survive SIGKILL: {error.text}",
                obj=path,
                step="kill remaining processes",
                action="In state D they hang in the kernel, in R they wait for a processor. The agent tries again.",
            ) from error

    def _signal(self, path: str, pids: Iterable[int]) -> None:
        if self.version == 2:
            with contextlib.suppress(OSError):  # cgroup.kill exists since Linux 5.14
                self._files.write(f"{self._points['']}{path}/cgroup.kill", "1")
                return
        sigkill(pids)

    def _freeze(self, path: str, state: str) -> None:
        """v1 only: cgroup.kill of v2 ends also what is frozen, and what forks."""
        if self.version == 1 and "freezer" in self._points:
            for group in self._below(self._points["freezer"] + path):
                with contextlib.suppress(OSError):
                    group.write("freezer.state", state)

    def _lift_quota(self, path: str) -> None:
        """No quota of CPU any more: thousands of processes that share a small one take minutes to die."""
        name, none = self._quota
        if "cpu" in self.controllers:
            for group in self._below(self.folder(path, "cpu")):
                with contextlib.suppress(OSError):
                    group.write(name, none)

    def _rmdir(self, folder: str, group: FoundGroup) -> None:
        pause = Backoff(0.005, 1)
        for attempt in range(_RMDIR_ATTEMPTS):
            try:
                group.remove()
            except FileNotFoundError:
                return
            except OSError as error:
                # The kernel frees a cgroup a moment after its last process is gone.
                if error.errno != errno.EBUSY or attempt == _RMDIR_ATTEMPTS - 1:
                    what = f"remove cgroup {group.name[:80]!r}"
                    raise failure(folder, what, error, "The agent tries again.") from error
                time.sleep(pause.next())
            else:
                return


def _has_program(pid: int) -> bool:
    """Threads of the kernel have none; what has ended has none either."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _checked(path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or len(parts) < 2 or not all(parts[1:]) or ".." in parts:
        raise Permanent(f"{path!r} is not the path of a cgroup below the root", step="use cgroup")
    return path
