"""Who holds the node's disk: what each pod has in volumes, logs, containers' files. For people, at /disk. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.stats.model import PodStats, Snapshot

_MOST = 200  # pods, and parts of one


@dataclass(frozen=True, slots=True)
class DiskPart:
    """`kind`: "volume", "log", "files" (a container's own, over its image) or "own" (files that the agent makes).

    `unread`: why a part of it could not be measured, "" if all was.
    """

    kind: str
    name: str
    used: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class PodDisk:
    """What a pod holds, the largest part first; `used` is all of it, `left_out` parts are not listed."""

    namespace: str
    name: str
    used: int
    parts: tuple[DiskPart, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The pods that hold most, the first one most of all; `used` is what all of them hold."""

    used: int
    pods: tuple[PodDisk, ...]
    left_out: int = 0


def disk_report(snapshot: Snapshot) -> DiskReport:
    """`snapshot`: with storage."""
    every = sorted((_pod(one) for one in snapshot.pods), key=lambda one: (-one.used, one.namespace, one.name))
    return DiskReport(sum(one.used for one in every), tuple(every[:_MOST]), max(0, len(every) - _MOST))


def _pod(pod: PodStats) -> PodDisk:
    parts = sorted(_parts(pod), key=lambda one: (not one.unread, -one.used, one.kind, one.name))
    used = sum(one.used for one in parts)
    return PodDisk(pod.namespace, pod.name, used, tuple(parts[:_MOST]), max(0, len(parts) - _MOST))


def _parts(pod: PodStats) -> Iterator[DiskPart]:
    """What counts as local ephemeral storage (summary.py)."""
    for volume in pod.volumes:
        if volume.ephemeral:
            yield DiskPart("volume", volume.name, volume.usage.used, volume.usage.unread)
    for container in pod.containers:
        if container.logs is not None:
            yield DiskPart("log", container.name, container.logs.used, container.logs.unread)
        if container.layer is not None:
            yield DiskPart("files", container.name, container.layer.used)
    if pod.own_files is not None:
        yield DiskPart("own", "", pod.own_files.used, pod.own_files.unread)
