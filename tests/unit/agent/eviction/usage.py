"""What pods and a node use, for the tables of this folder. All sizes in bytes."""

from __future__ import annotations

from agent.eviction.model import Candidate
from agent.stats.model import (
    CgroupSample,
    ContainerStats,
    FsUsage,
    Layer,
    Memory,
    NodeStats,
    PodStats,
    VolumeStats,
)
from nodelib.json_values import Json
from tests.builders.pods import container, pod

MIB = 1 << 20


def used_by(
    uid: str, *, memory: int = 0, layer: int = 0, logs: int = 0, volume: int = 0, processes: int = 0, inodes: int = 0
) -> PodStats:
    sample = CgroupSample(f"/pod{uid}", 1, memory=Memory(usage=memory, working_set=memory), processes=processes)
    one = ContainerStats(
        f"{uid}-main", "main", "busybox", 1, sample, Layer(1, layer, inodes), FsUsage(1, used=logs, inodes_used=0)
    )
    volumes = (VolumeStats("cache", FsUsage(1, used=volume), ephemeral=True),)
    return PodStats(uid, "shop", uid, 1, sample, (one,), volumes=volumes)


def candidate(name: str, *, priority: int = 0, request: str = "", known: bool = True, **use: int) -> Candidate:
    resources: Json = {"requests": {"memory": request, "ephemeral-storage": request}} if request else {}
    made = pod(container(resources=resources), meta={"name": name, "uid": name}, priority=priority)
    return Candidate(made, used_by(name, **use) if known else None)


def node(*, memory: int = 1024 * MIB, fs: FsUsage | None = None, image_fs: FsUsage | None = None) -> NodeStats:
    """1 GiB of memory of which `memory` is left; 1000 processes of which 900 run."""
    sample = CgroupSample("/", 1, memory=Memory(working_set=1024 * MIB - memory))
    pods = CgroupSample("/kubepods", 1, memory=Memory(working_set=100 * MIB, limit=512 * MIB))
    disk = fs or FsUsage(1, 1000, 500, inodes=100, inodes_free=50, device=1)
    return NodeStats(
        "n1",
        1,
        sample,
        1024 * MIB,
        2,
        fs=disk,
        image_fs=image_fs or disk,
        max_pid=1000,
        processes=900,
        systems={"pods": pods},
    )
