"""Figures from the kernel: cgroup files (v1, hybrid and v2), /proc, statvfs, the size of a tree.

All calls block on files and are meant for a thread. Nothing here runs on a timer.
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html, https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import errno
import os
import re
import time

from agent.stats.edge import container_details
from agent.stats.edge.kernel_files import bounded, device_name, folders, number, pairs, pairs_if_there, pressure, text
from agent.stats.model import CgroupSample, ContainerDetails, Cpu, Disk, FsUsage, Interface, Memory, PodCgroup, Pressure
from nodelib.files import text_of

_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)  # ENODEV: it was removed while it was read
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:.*-)?([0-9a-f]{64})(?:\.scope)?$")


class CgroupReader:
    """Reads one machine's cgroups. `mount`: where they are mounted (another root for recorded trees)."""

    def __init__(self, mount: str = "/sys/fs/cgroup") -> None:
        self.unified = os.path.exists(os.path.join(mount, "cgroup.controllers"))
        self._roots = {} if self.unified else _v1_roots(mount)
        self._mount = mount

    def sample(self, path: str) -> CgroupSample | None:
        """The figures of one cgroup, None when it is gone (or no cgroups are mounted here)."""
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
                containers = {
                    hit[1]: f"{inner}/{child}" for child in folders(root + inner) if (hit := _CONTAINER.match(child))
                }
                found[match[1].replace("_", "-")] = PodCgroup(inner, containers)
        return found

    def a_process(self, path: str) -> int | None:
        """A process id of that cgroup, None when there is none."""
        root = self._mount if self.unified else self._roots.get("memory", self._mount)
        try:
            with open(f"{root}{path}/cgroup.procs", encoding="ascii") as file:
                first = file.readline().strip()
        except OSError:
            return None
        return int(first) if first else None

    def details(self, path: str) -> ContainerDetails | None:
        """What its processes hold, its limits and its block I/O; None when it is gone."""
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
            # Those of the cgroup without what is below it, as cAdvisor has them on v1.
            page_faults=stat.get("pgfault", 0),
            major_page_faults=stat.get("pgmajfault", 0),
        )
        pids = self._roots.get("pids")
        # The root cgroup has no pids.current.
        processes = number(f"{pids}{path}/pids.current", missing=0) if pids else 0
        return CgroupSample(path, at, cpu, memory, processes)


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
    # The root cgroup has no memory.current and no pids.current: its figures come from /proc (see node_memory).
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
        ),
        number(f"{folder}/pids.current", missing=0),
        pressure(f"{folder}/io.pressure"),
    )


def node_memory(proc: str = "/proc") -> tuple[Memory, int, int]:
    """The machine's memory as a root cgroup would show it, its capacity, and its swap, in bytes."""
    info = {}
    for line in text(f"{proc}/meminfo").splitlines():
        name, _, rest = line.partition(":")
        info[name] = int(rest.split()[0]) * 1024
    usage = info["MemTotal"] - info["MemFree"]
    vmstat = pairs_if_there(f"{proc}/vmstat")
    memory = Memory(
        usage=usage,
        working_set=max(0, usage - info.get("Inactive(file)", 0)),
        rss=info.get("AnonPages", 0),
        cache=info.get("Cached", 0) + info.get("Buffers", 0),
        mapped_file=info.get("Mapped", 0),
        swap=info.get("SwapTotal", 0) - info.get("SwapFree", 0),
        page_faults=vmstat.get("pgfault", 0),
        major_page_faults=vmstat.get("pgmajfault", 0),
    )
    return memory, info["MemTotal"], info.get("SwapTotal", 0)


def node_cpu(proc: str = "/proc") -> Cpu:
    """CPU time of all processors since the start of the machine, idle and waiting left out."""
    fields = [int(field) * _TICK for field in text(f"{proc}/stat").split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = (*fields, 0, 0, 0)[:8]
    return Cpu(usage=user + nice + system + irq + softirq + steal, user=user + nice, system=system + irq + softirq)


def boot_time(proc: str = "/proc") -> int:
    """When the machine started, in nanoseconds since the epoch."""
    for line in text(f"{proc}/stat").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) * 1_000_000_000
    return 0


def process_limits(proc: str = "/proc") -> tuple[int, int]:
    """(the most processes and threads that there may be, how many there are)."""
    most = min(number(f"{proc}/sys/kernel/pid_max"), number(f"{proc}/sys/kernel/threads-max"))
    return most, int(text(f"{proc}/loadavg").split()[3].partition("/")[2])


def interfaces(pid: int | str = "self", proc: str = "/proc") -> tuple[Interface, ...]:
    """Network counters of the namespace that a process is in; empty when it is gone."""
    try:
        lines = text(f"{proc}/{pid}/net/dev").splitlines()[2:]
    except OSError:
        return ()
    return tuple(_interface(line) for line in lines)


def _interface(line: str) -> Interface:
    name, _, rest = line.partition(":")
    field = [int(word) for word in rest.split()]
    return Interface(name.strip(), *field[0:4], *field[8:12])


def default_interface(proc: str = "/proc") -> str:
    """The interface of the default route, "" when there is none."""
    try:
        lines = text(f"{proc}/self/net/route").splitlines()[1:]
    except OSError:
        return ""
    return next((fields[0] for line in lines if (fields := line.split())[1] == "00000000"), "")


def disk(device: int, proc: str = "/proc") -> Disk | None:
    """Counters of the block device with this st_dev, None for what is none (an overlay, a tmpfs)."""
    wanted = [str(os.major(device)), str(os.minor(device))]
    for line in text_of(f"{proc}/diskstats").splitlines():
        fields = line.split()
        if fields[:2] == wanted:
            return Disk(device_name(os.major(device), os.minor(device)), *map(int, fields[3:14]))
    return None


def own_process() -> tuple[Cpu, Memory]:
    """The agent itself: CPU time, resident memory, page faults."""
    times = os.times()
    user, system = int(times.user * 1e9), int(times.system * 1e9)
    resident = int(text("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # proc_pid_stat(5): behind the name in brackets, minflt is the eighth word and majflt the tenth.
    fields = text("/proc/self/stat").rpartition(")")[2].split()
    minor, major = int(fields[7]), int(fields[9])
    memory = Memory(resident, resident, resident, page_faults=minor + major, major_page_faults=major)
    return Cpu(user + system, user, system), memory


def node_pressure(proc: str = "/proc") -> tuple[Pressure, Pressure, Pressure]:
    """What waited on the whole machine: for CPU, for memory, for block devices."""
    return pressure(f"{proc}/pressure/cpu"), pressure(f"{proc}/pressure/memory"), pressure(f"{proc}/pressure/io")


def filesystem(path: str) -> FsUsage | None:
    """The file system that holds `path`, None when there is no such path."""
    try:
        found, device = os.statvfs(path), os.stat(path).st_dev
    except OSError:
        return None
    return FsUsage(
        at=time.time_ns(),
        capacity=found.f_blocks * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        used=(found.f_blocks - found.f_bfree) * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
        inodes_used=found.f_files - found.f_ffree,
        device=device,
    )


def tree(path: str) -> tuple[int, int]:
    """(bytes, inodes) that a directory uses on its own file system, as du counts; hard links once."""
    try:
        top = os.lstat(path)
    except OSError:
        return 0, 0
    used, inodes = top.st_blocks * 512, 1
    linked: set[int] = set()
    pending = [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev != top.st_dev or found.st_ino in linked:
                        continue
                    if found.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        linked.add(found.st_ino)
                    used += found.st_blocks * 512
                    inodes += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue  # removed while we looked: it uses nothing any more
    return used, inodes


def volumes_of(pods_dir: str, uid: str) -> list[tuple[str, str, str]]:
    """(plugin, volume name, path) of what is mounted for a pod below its directory."""
    root = os.path.join(pods_dir, uid, "volumes")
    return [
        (plugin, name, os.path.join(root, plugin, name))
        for plugin in folders(root)
        for name in folders(os.path.join(root, plugin))
    ]
