"""Families of /metrics/cadvisor about the node's file systems and the disks under them.

Names, labels and types are those of cAdvisor's metrics/prometheus.go, which has them for the root cgroup only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agent.stats.model import Disk, FsUsage
from agent.stats.plan.exposition import Family, Labels, Sample

Entry = tuple[Labels, Disk, FsUsage]

_MILLI = 1e3
_FILE_SYSTEMS: tuple[tuple[str, str, Callable[[FsUsage], int]], ...] = (
    ("inodes_free", "Number of available Inodes", lambda fs: fs.inodes_free),
    ("inodes_total", "Number of Inodes", lambda fs: fs.inodes),
    (
        "limit_bytes",
        "Number of bytes that can be consumed by the container on this filesystem.",
        lambda fs: fs.capacity,
    ),
)
_DISKS: tuple[tuple[str, str, Callable[[Disk], float]], ...] = (
    ("sector_reads_total", "Cumulative count of sector reads completed", lambda disk: disk.sectors_read),
    ("reads_merged_total", "Cumulative count of reads merged", lambda disk: disk.reads_merged),
    ("read_seconds_total", "Cumulative count of seconds spent reading", lambda disk: disk.reading / _MILLI),
    ("sector_writes_total", "Cumulative count of sector writes completed", lambda disk: disk.sectors_written),
    ("writes_merged_total", "Cumulative count of writes merged", lambda disk: disk.writes_merged),
    ("write_seconds_total", "Cumulative count of seconds spent writing", lambda disk: disk.writing / _MILLI),
    ("io_current", "Number of I/Os currently in progress", lambda disk: disk.in_progress),
    ("io_time_seconds_total", "Cumulative count of seconds spent doing I/Os", lambda disk: disk.busy / _MILLI),
    ("io_time_weighted_seconds_total", "Cumulative weighted I/O time in seconds", lambda disk: disk.weighted / _MILLI),
)


def disk_families(entries: Sequence[Entry]) -> Iterator[Family]:
    """Each family once, of all disks."""
    for name, text, read in _FILE_SYSTEMS:
        yield Family(f"container_fs_{name}", "gauge", text, [_at(entry, read(entry[2])) for entry in entries])
    for name, text, count in _DISKS:
        kind = "gauge" if name == "io_current" else "counter"
        yield Family(f"container_fs_{name}", kind, text, [_at(entry, count(entry[1])) for entry in entries])


def usage_of(entries: Sequence[Entry]) -> Iterator[Sample]:
    """Used bytes of each file system, for the family that has the containers' layers too."""
    for entry in entries:
        yield _at(entry, entry[2].used)


def _at(entry: Entry, value: float) -> Sample:
    labels, disk, usage = entry
    return {**labels, "device": disk.name}, value, usage.at // 1_000_000
