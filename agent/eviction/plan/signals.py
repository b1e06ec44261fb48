"""The eviction signals: their resources, their node conditions, and their values as measured on the node.

containerfs is the same as imagefs (or nodefs, where all share a file system), as upstream has it for runtimes that keep
images and writable layers together: its thresholds are theirs.
"""

from __future__ import annotations

from agent.common.model.eviction import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from agent.eviction.model import Observation, Threshold
from agent.stats.model import FsUsage, NodeStats

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY = "allocatableMemory.available"
PID_AVAILABLE = "pid.available"
NODE_FS, IMAGE_FS = "nodefs.available", "imagefs.available"
NODE_INODES, IMAGE_INODES = "nodefs.inodesFree", "imagefs.inodesFree"

MEMORY, STORAGE, INODES, PIDS = "memory", "ephemeral-storage", "inodes", "pids"
RESOURCES = {
    MEMORY_AVAILABLE: MEMORY,
    ALLOCATABLE_MEMORY: MEMORY,
    NODE_FS: STORAGE,
    NODE_INODES: INODES,
    IMAGE_FS: STORAGE,
    IMAGE_INODES: INODES,
    PID_AVAILABLE: PIDS,
}

_CONDITIONS = {MEMORY: MEMORY_PRESSURE, STORAGE: DISK_PRESSURE, INODES: DISK_PRESSURE, PIDS: PID_PRESSURE}


def condition_of(signal: str) -> str:
    """The node condition that a met threshold of this signal sets."""
    return _CONDITIONS[RESOURCES[signal]]


def urgency(threshold: Threshold) -> tuple[bool, str, float]:
    """A sort key: memory before all else, since the kernel kills for it; then in a fixed order."""
    return RESOURCES[threshold.signal] != MEMORY, threshold.signal, threshold.grace


def observe(node: NodeStats) -> dict[str, Observation]:
    """What is available of everything that can be measured now (makeSignalObservations)."""
    found = {
        MEMORY_AVAILABLE: Observation(node.memory_available, node.memory_available + node.sample.memory.working_set),
        PID_AVAILABLE: Observation(node.max_pid - node.processes, node.max_pid),
    }
    pods = node.systems.get("pods")
    if pods is not None and pods.memory.limit:
        limit = min(pods.memory.limit, node.memory_capacity)
        found[ALLOCATABLE_MEMORY] = Observation(max(0, limit - pods.memory.working_set), limit)
    _observe_fs(found, node.fs, NODE_FS, NODE_INODES)
    _observe_fs(found, node.image_fs, IMAGE_FS, IMAGE_INODES)
    return found


def has_image_fs(node: NodeStats) -> bool:
    """Whether images are on another file system than volumes and logs."""
    return node.fs is not None and node.image_fs is not None and node.fs.device != node.image_fs.device


def _observe_fs(found: dict[str, Observation], fs: FsUsage | None, space: str, inodes: str) -> None:
    if fs is None:
        return
    found[space] = Observation(fs.available, fs.capacity)
    # Some file systems (btrfs) do not count inodes: 0 of 0 does not mean that none is left.
    if fs.inodes:
        found[inodes] = Observation(fs.inodes_free, fs.inodes)
