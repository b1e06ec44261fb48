"""Families of /metrics/cadvisor about a container's processes, limits and block I/O.

Names, labels and types are those of cAdvisor's metrics/prometheus.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.stats.model import ContainerDetails, Device
from agent.stats.plan.exposition import Family, Labels, Sample

# (labels, milliseconds since the epoch, details of the container)
Entry = tuple[Labels, int, ContainerDetails]

_COUNTS: tuple[tuple[str, str, str, Callable[[ContainerDetails], int]], ...] = (
    ("file_descriptors", "gauge", "Number of open file descriptors for the container.", lambda at: at.file_descriptors),
    ("sockets", "gauge", "Number of open sockets for the container.", lambda at: at.sockets),
    ("threads", "gauge", "Number of threads running inside the container", lambda at: at.threads),
    (
        "threads_max",
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        lambda at: at.threads_max,
    ),
    (
        "memory_events_high_total",
        "counter",
        "Cumulative count of memory.high throttle events for the container",
        lambda at: at.memory_high,
    ),
    (
        "memory_events_max_total",
        "counter",
        "Cumulative count of memory.max limit hit events for the container",
        lambda at: at.memory_max,
    ),
    (
        "oom_events_total",
        "counter",
        "Count of out of memory events observed for the container",
        lambda at: at.oom_kills,
    ),
)
_LIMITS: tuple[tuple[str, str, Callable[[ContainerDetails], int]], ...] = (
    ("cpu_period", "CPU period of the container.", lambda at: at.cpu_period),
    ("cpu_shares", "CPU share of the container.", lambda at: at.cpu_shares),
    ("memory_swap_limit_bytes", "Memory swap limit for the container.", lambda at: at.memory_swap_limit),
    (
        "memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        lambda at: at.memory_reservation,
    ),
)
_BLOCK: tuple[tuple[str, str, str, Callable[[Device], Mapping[str, int]]], ...] = (
    ("reads_bytes_total", "Cumulative count of bytes read", "Read", lambda at: at.bytes),
    ("reads_total", "Cumulative count of reads completed", "Read", lambda at: at.operations),
    ("writes_bytes_total", "Cumulative count of bytes written", "Write", lambda at: at.bytes),
    ("writes_total", "Cumulative count of writes completed", "Write", lambda at: at.operations),
)


def families_of(entries: Sequence[Entry]) -> Iterator[Family]:
    """Every family once, of all containers."""
    for name, kind, text, read in _COUNTS:
        yield Family(f"container_{name}", kind, text, [(labels, read(of), at) for labels, at, of in entries])
    for name, text, read in _LIMITS:
        # Limits carry no timestamp, as in cAdvisor.
        yield Family(f"container_spec_{name}", "gauge", text, [(labels, read(of), None) for labels, _, of in entries])
    quotas: list[Sample] = [(labels, of.cpu_quota, None) for labels, _, of in entries if of.cpu_quota]
    yield Family("container_spec_cpu_quota", "gauge", "CPU quota of the container.", quotas)
    yield Family(
        "container_ulimits_soft",
        "gauge",
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        [
            ({**labels, "ulimit": "max_open_files"}, of.open_files, at)
            for labels, at, of in entries
            if of.open_files is not None
        ],
    )
    yield from _block(entries)


def _block(entries: Sequence[Entry]) -> Iterator[Family]:
    devices = [(labels, at, device) for labels, at, of in entries for device in of.devices]
    for name, text, operation, read in _BLOCK:
        samples: list[Sample] = [
            ({**labels, "device": device.name}, read(device).get(operation, 0), at) for labels, at, device in devices
        ]
        yield Family(f"container_fs_{name}", "counter", text, samples)
    yield Family(
        "container_blkio_device_usage_total",
        "counter",
        "Blkio Device bytes usage",
        [
            (
                {
                    **labels,
                    "device": device.name,
                    "major": str(device.major),
                    "minor": str(device.minor),
                    "operation": operation,
                },
                size,
                at,
            )
            for labels, at, device in devices
            for operation, size in device.bytes.items()
        ],
    )
