"""Open files of a container's processes, limits of its cgroup, and its block I/O, as cAdvisor reads them.

lib/container/libcontainer/handler.go and container/common/helpers.go of cAdvisor; proc(5),
https://docs.kernel.org/admin-guide/cgroup-v1/blkio-controller.html, https://docs.kernel.org/admin-guide/cgroup-v2.html.
Files that this kernel or hierarchy does not have count as zero. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from agent.stats.edge.kernel_files import bounded, device_name, number, pairs_if_there, text
from agent.stats.model import ContainerDetails, Device
from nodelib.files import text_of

_OPERATIONS = {
    "rbytes": "Read",
    "wbytes": "Write",
    "dbytes": "Discard",
    "rios": "Read",
    "wios": "Write",
    "dios": "Discard",
}

# Links that are read of one container: its processes may share a table of a million, and each of them shows it anew.
_MOST_LINKS = 16384

Counts = dict[tuple[int, int], dict[str, int]]


def read_v1(folders: Mapping[str, str]) -> ContainerDetails | None:
    """`folders` has the cgroup's folder in each hierarchy, by controller. None when it is gone."""
    cpu, memory, pids = (folders.get(name, "") for name in ("cpu", "memory", "pids"))
    processes = _processes(memory)
    if processes is None:
        return None
    descriptors, sockets, open_files = _open_descriptors(processes)
    block = folders.get("blkio", "")
    return ContainerDetails(
        file_descriptors=descriptors,
        sockets=sockets,
        threads=number(f"{pids}/pids.current", missing=0),
        threads_max=number(f"{pids}/pids.max", missing=0),
        open_files=open_files,
        cpu_shares=number(f"{cpu}/cpu.shares", missing=0),
        cpu_period=number(f"{cpu}/cpu.cfs_period_us", missing=0),
        cpu_quota=max(0, number(f"{cpu}/cpu.cfs_quota_us", missing=0)),
        memory_swap_limit=bounded(number(f"{memory}/memory.memsw.limit_in_bytes", missing=0)),
        memory_reservation=bounded(number(f"{memory}/memory.soft_limit_in_bytes", missing=0)),
        memory_max=number(f"{memory}/memory.failcnt", missing=0),
        oom_kills=pairs_if_there(f"{memory}/memory.oom_control").get("oom_kill", 0),
        devices=_devices(
            _block(f"{block}/blkio.throttle.io_service_bytes_recursive"),
            _block(f"{block}/blkio.throttle.io_serviced_recursive"),
        ),
    )


def read_v2(folder: str) -> ContainerDetails | None:
    """`folder` is a cgroup of the unified hierarchy. None when it is gone."""
    processes = _processes(folder)
    if processes is None:
        return None
    descriptors, sockets, open_files = _open_descriptors(processes)
    quota, _, period = text_of(f"{folder}/cpu.max").strip().partition(" ")
    weight = number(f"{folder}/cpu.weight", missing=0)
    events = pairs_if_there(f"{folder}/memory.events")
    used, served = _io_stat(text_of(f"{folder}/io.stat"))
    return ContainerDetails(
        file_descriptors=descriptors,
        sockets=sockets,
        threads=number(f"{folder}/pids.current", missing=0),
        threads_max=number(f"{folder}/pids.max", missing=0),
        open_files=open_files,
        cpu_shares=2 + (weight - 1) * 262142 // 9999 if weight else 0,  # the inverse that cAdvisor applies
        cpu_period=int(period or 0),
        cpu_quota=int(quota) if quota.isdigit() else 0,
        memory_swap_limit=number(f"{folder}/memory.swap.max", missing=0),
        memory_reservation=number(f"{folder}/memory.low", missing=0),
        memory_high=events.get("high", 0),
        memory_max=events.get("max", 0),
        oom_kills=events.get("oom_kill", 0),
        devices=_devices(used, served),
    )


def _processes(folder: str) -> list[str] | None:
    try:
        return text(f"{folder}/cgroup.procs").split()
    except OSError:
        return None


def _open_descriptors(processes: Iterable[str]) -> tuple[int, int, int | None]:
    """(file descriptors, sockets among them, soft limit of open files of the first process that can be read).

    Beyond _MOST_LINKS the kernel counts, which before Linux 6.2 it does not, and sockets are not told from the rest.
    """
    descriptors = sockets = 0
    left, open_files = _MOST_LINKS, None
    for pid in processes:
        open_files = open_files if open_files is not None else _open_files(pid)
        folder, count = f"/proc/{pid}/fd", 0
        for link in islice(_links(folder), left):
            count += 1
            sockets += link.startswith("socket:")
        left -= count
        descriptors += count if left else max(count, _counted(folder))
    return descriptors, sockets, open_files


def _links(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    link = os.readlink(entry.path)
                except OSError:
                    continue  # closed meanwhile
                yield link
    except OSError:
        return  # the process has ended


def _counted(folder: str) -> int:
    try:
        return os.stat(folder).st_size
    except OSError:
        return 0


def _open_files(pid: str) -> int | None:
    for line in text_of(f"/proc/{pid}/limits").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return -1 if soft == "unlimited" else int(soft)
    return None


def _block(path: str) -> Counts:
    """A file of blkio: lines "MAJOR:MINOR OPERATION NUMBER", then a total."""
    found: Counts = {}
    for words in map(str.split, text_of(path).splitlines()):
        if len(words) == 3:
            found.setdefault(_number_of(words[0]), {})[words[1]] = int(words[2])
    return found


def _io_stat(content: str) -> tuple[Counts, Counts]:
    """(bytes, operations) of io.stat: lines "MAJOR:MINOR NAME=NUMBER…"."""
    used: Counts = {}
    served: Counts = {}
    for device, *words in (line.split() for line in content.splitlines()):
        for name, _, value in (word.partition("=") for word in words):
            if name in _OPERATIONS:
                counts = used if name.endswith("bytes") else served
                counts.setdefault(_number_of(device), {})[_OPERATIONS[name]] = int(value)
    return used, served


def _devices(used: Counts, served: Counts) -> tuple[Device, ...]:
    return tuple(
        Device(device_name(*key), *key, used.get(key, {}), served.get(key, {})) for key in sorted({*used, *served})
    )


def _number_of(device: str) -> tuple[int, int]:
    major, _, minor = device.partition(":")
    return int(major), int(minor)
