"""Accounting of the machine, its file systems and folders: /proc, statvfs, the size of a tree.

Everything here reads files and blocks: call it in a thread. Nothing runs on a timer.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from itertools import islice

from agent.stats.edge.kernel_files import device_name, folders, number, pairs_if_there, pressure, text
from agent.stats.model import Cpu, Disk, FsUsage, Interface, Memory, Pressure, TreeUsage
from nodelib.cgroups import cpus_here, is_part_of_machine
from nodelib.errors import Temporary
from nodelib.file_trees import Kind, Step, Walk
from nodelib.files import text_of
from nodelib.shortage import is_shortage

_MOST_OF_POD = 64  # interfaces
_TRIES = 5  # at a deep tree of which directories are moved meanwhile
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


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
    """CPU time of all processors since boot, without idle and I/O wait."""
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
    """(limit of processes and threads, current number)."""
    most = min(number(f"{proc}/sys/kernel/pid_max"), number(f"{proc}/sys/kernel/threads-max"))
    return most, int(text(f"{proc}/loadavg").split()[3].partition("/")[2])


def interfaces(pid: int | str = "self", proc: str = "/proc") -> tuple[Interface, ...]:
    """Counters of the interfaces in a process's network namespace; empty when the process is gone.

    Of a pod's the first ones: one that may make links makes a hundred thousand, and every scrape has them.
    """
    try:
        # With this newline no other character ends a line: such a pod also chooses their names.
        with open(f"{proc}/{pid}/net/dev", encoding="ascii", errors="replace", newline="\n") as file:
            return tuple(map(_interface, islice(file, 2, None if pid == "self" else 2 + _MOST_OF_POD)))
    except OSError:
        return ()


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
    """Counters of the block device with this st_dev, None when it is not one (an overlay, a tmpfs)."""
    wanted = [str(os.major(device)), str(os.minor(device))]
    for line in text_of(f"{proc}/diskstats").splitlines():
        fields = line.split()
        if fields[:2] == wanted:
            return Disk(device_name(os.major(device), os.minor(device)), *map(int, fields[3:14]))
    return None


def cpus() -> int:
    """The number of logical processors, or of those that a quota of the whole node leaves it."""
    return cpus_here()


def is_part() -> bool:
    """Whether this node is a container or a node of `up`, with the rest of the machine beside it."""
    return is_part_of_machine()


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
    """Stall information of the whole machine: CPU, memory, I/O."""
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


def tree(path: str) -> TreeUsage:
    """What a file or a directory uses on its own file system, as du counts; hard links once, mounts in it not at all.

    A pod may write meanwhile, and may try to be measured badly: a file that only gets another name is still counted,
    and what cannot be read is reported. Upstream (fs.DiskUsage, by path) leaves such files out. What moves from one
    directory into another meanwhile may be missed or counted twice, as by du.

    Raises Temporary when the node is out of descriptors or memory, which says nothing about the pod.
    """
    for _ in range(_TRIES):
        count = _Count()
        try:
            walk = Walk(path)
            for step in walk:
                count.add(walk, step)
        except FileNotFoundError:
            break
        except NotADirectoryError:
            return TreeUsage(os.lstat(path).st_blocks * 512, 1)
        except OSError as error:
            count.fail(error)
            if error.errno == errno.ESTALE:
                continue
        break
    return count.usage()


class _Count:
    """Bytes and inodes of a tree, while it is walked."""

    def __init__(self) -> None:
        self.used = self.inodes = self.device = 0
        self.unread = ""
        self._linked: set[int] = set()

    def usage(self) -> TreeUsage:
        return TreeUsage(self.used, self.inodes, self.unread)

    def add(self, walk: Walk, step: Step) -> None:
        """Raises Temporary."""
        match step.kind:
            case Kind.ENTER:
                found = os.fstat(step.handle)
                self.device = self.device or found.st_dev
                self._add(found)
            case Kind.FILE:
                try:
                    found = os.lstat(step.name, dir_fd=step.folder)
                except FileNotFoundError:
                    walk.missed(step)
                except OSError as error:
                    self.fail(error)
                else:
                    if stat.S_ISDIR(found.st_mode) or step.error is not None:
                        walk.missed(step)  # a file and a directory have exchanged their names
                    else:
                        self._add(found)
            case Kind.FAILED if step.error is not None:
                self.fail(step.error)

    def fail(self, error: OSError) -> None:
        if is_shortage(error):  # of this process, not of what is measured
            raise Temporary(
                f"the disk usage cannot be measured now: {error}",
                step="measure disk usage",
                action="See how many files the agent has open (`ls /proc/PID/fd | wc -l`) and may open (LimitNOFILE).",
            ) from error
        self.unread = self.unread or str(error)

    def _add(self, found: os.stat_result) -> None:
        if found.st_dev != self.device or found.st_ino in self._linked:
            return
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            self._linked.add(found.st_ino)
        self.used += found.st_blocks * 512
        self.inodes += 1


def volumes_of(pods_dir: str, uid: str) -> list[tuple[str, str, str]]:
    """(plugin, volume name, path) of each volume in a pod's directory."""
    root = os.path.join(pods_dir, uid, "volumes")
    return [
        (plugin, name, os.path.join(root, plugin, name))
        for plugin in folders(root)
        for name in folders(os.path.join(root, plugin))
    ]
