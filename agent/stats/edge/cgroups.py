"""Accounting of cgroups: the files of v1, hybrid and v2 hierarchies as CgroupSample values.

Everything here reads files and blocks: call it in a thread. Nothing runs on a timer.
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html, https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import errno
import os
import re
import time

from agent.stats.edge import container_details
from agent.stats.edge.kernel_files import bounded, folders, number, pairs, pairs_if_there, pressure
from agent.stats.model import CgroupSample, ContainerDetails, Cpu, Memory, PodCgroup

_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)  # ENODEV: it was removed while it was read
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?\Z")
# CRI-O's process beside each container has a cgroup of its own, which cAdvisor leaves out, too (container/crio).
_CONTAINER = re.compile(r"(?!crio-conmon-)(?:.*-)?([0-9a-f]{64})(?:\.scope)?")


class CgroupReader:
    """Reads one machine's cgroups. `mount`: where they are mounted (another root for recorded trees)."""

    def __init__(self, mount: str = "/sys/fs/cgroup") -> None:
        self.unified = os.path.exists(os.path.join(mount, "cgroup.controllers"))
        self._roots = {} if self.unified else _v1_roots(mount)
        self._mount = mount

    def sample(self, path: str) -> CgroupSample | None:
        """Accounting of one cgroup, None when it is gone or no cgroups are mounted."""
        at = time.time_ns()
        if not self.unified and not {"memory", "cpuacct"} <= self._roots.keys():
            return None
        try:
            if self.unified:
                return _sample_v2(self._mount, path, at)
            return self._sample_v1(path, at)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def pods(self, kubepods: str) -> dict[str, PodCgroup]:
        """Pod cgroups below `kubepods` (as in /proc/<pid>/cgroup) by UID, of the cgroupfs and systemd drivers alike."""
        root = self._mount if self.unified else self._roots.get("memory", self._mount)
        found: dict[str, PodCgroup] = {}
        pending = [kubepods]
        while pending:
            path = pending.pop()
            for name in folders(root + path):
                inner = f"{path.rstrip('/')}/{name}"
                match = _POD.search(name)
                if match is None:
                    if "kubepods" in name or name in ("besteffort", "burstable"):
                        pending.append(inner)
                    continue
                children = ((child, _CONTAINER.fullmatch(child)) for child in folders(root + inner))
                containers = {hit[1]: f"{inner}/{child}" for child, hit in children if hit}
                found[match[1].replace("_", "-")] = PodCgroup(inner, containers)
        return found

    def any_pid(self, path: str) -> int | None:
        """The id of a process in that cgroup, None when there is none."""
        root = self._mount if self.unified else self._roots.get("memory", self._mount)
        try:
            with open(f"{root}{path}/cgroup.procs", encoding="ascii") as file:
                first = file.readline().strip()
        except OSError:
            return None
        return int(first) if first else None

    def details(self, path: str) -> ContainerDetails | None:
        """Open files, limits and block I/O of one cgroup, None when it is gone."""
        try:
            if self.unified:
                return container_details.read_v2(self._mount + path)
            return container_details.read_v1({name: root + path for name, root in self._roots.items()})
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def _sample_v1(self, path: str, at: int) -> CgroupSample:
        memory_at, cpu_at = self._roots["memory"] + path, self._roots["cpuacct"] + path
        ticks = pairs(f"{cpu_at}/cpuacct.stat")
        bandwidth = pairs_if_there(f"{self._roots.get('cpu', '')}{path}/cpu.stat")
        cpu = Cpu(
            usage=number(f"{cpu_at}/cpuacct.usage"),
            user=ticks.get("user", 0) * _TICK,
            system=ticks.get("system", 0) * _TICK,
            periods=bandwidth.get("nr_periods", 0),
            throttled_periods=bandwidth.get("nr_throttled", 0),
            throttled=bandwidth.get("throttled_time", 0),
        )
        stat = pairs(f"{memory_at}/memory.stat")
        usage = number(f"{memory_at}/memory.usage_in_bytes")
        memory = Memory(
            usage=usage,
            working_set=max(0, usage - stat.get("total_inactive_file", 0)),
            rss=stat.get("total_rss", 0),
            cache=stat.get("total_cache", 0),
            mapped_file=stat.get("total_mapped_file", 0),
            swap=stat.get("total_swap", 0),
            max_usage=number(f"{memory_at}/memory.max_usage_in_bytes"),
            limit=bounded(stat.get("hierarchical_memory_limit", 0)),
            fail_count=number(f"{memory_at}/memory.failcnt"),
            # Without those of the cgroups below it, as cAdvisor reports them on v1.
            page_faults=stat.get("pgfault", 0),
            major_page_faults=stat.get("pgmajfault", 0),
            swap_limit=_swap_limit_v1(memory_at, bounded(stat.get("hierarchical_memory_limit", 0))),
            kernel=number(f"{memory_at}/memory.kmem.usage_in_bytes", missing=0),
            active_file=stat.get("total_active_file", 0),
            inactive_file=stat.get("total_inactive_file", 0),
            dirty=stat.get("total_dirty", 0),
            writeback=stat.get("total_writeback", 0),
        )
        pids = self._roots.get("pids")
        # The root cgroup has no pids.current.
        processes = number(f"{pids}{path}/pids.current", missing=0) if pids else 0
        return CgroupSample(path, at, cpu, memory, processes)


def _swap_limit_v1(folder: str, memory: int) -> int:
    """The hierarchy's limit is for memory and swap together."""
    both = bounded(number(f"{folder}/memory.memsw.limit_in_bytes", missing=0))
    return max(0, both - memory) if both else 0


def _v1_roots(mount: str) -> dict[str, str]:
    # cpu and cpuacct may be one hierarchy: the folder then carries both names.
    return {controller: os.path.join(mount, folder) for folder in folders(mount) for controller in folder.split(",")}


def _sample_v2(mount: str, path: str, at: int) -> CgroupSample:
    folder = mount + path
    stat = pairs(f"{folder}/cpu.stat")
    cpu = Cpu(
        usage=stat.get("usage_usec", 0) * 1000,
        user=stat.get("user_usec", 0) * 1000,
        system=stat.get("system_usec", 0) * 1000,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled=stat.get("throttled_usec", 0) * 1000,
        pressure=pressure(f"{folder}/cpu.pressure"),
    )
    # The root cgroup has no memory.current and no pids.current: those values come from /proc (machine.node_memory).
    memory = pairs_if_there(f"{folder}/memory.stat")
    usage = number(f"{folder}/memory.current", missing=0)
    events = pairs_if_there(f"{folder}/memory.events")
    return CgroupSample(
        path,
        at,
        cpu,
        Memory(
            usage=usage,
            working_set=max(0, usage - memory.get("inactive_file", 0)),
            rss=memory.get("anon", 0),
            cache=memory.get("file", 0),
            mapped_file=memory.get("file_mapped", 0),
            swap=number(f"{folder}/memory.swap.current", missing=0),
            max_usage=number(f"{folder}/memory.peak", missing=0),
            limit=number(f"{folder}/memory.max", missing=0),
            fail_count=events.get("max", 0),
            page_faults=memory.get("pgfault", 0),
            major_page_faults=memory.get("pgmajfault", 0),
            pressure=pressure(f"{folder}/memory.pressure"),
            swap_limit=number(f"{folder}/memory.swap.max", missing=0),
            kernel=memory.get("kernel", 0),
            active_file=memory.get("active_file", 0),
            inactive_file=memory.get("inactive_file", 0),
            dirty=memory.get("file_dirty", 0),
            writeback=memory.get("file_writeback", 0),
            scanned=memory.get("pgscan", 0),
            stolen=memory.get("pgsteal", 0),
            refaults_anon=memory.get("workingset_refault_anon", 0),
            refaults_file=memory.get("workingset_refault_file", 0),
        ),
        number(f"{folder}/pids.current", missing=0),
        pressure(f"{folder}/io.pressure"),
    )
