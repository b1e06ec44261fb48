"""Which pod is evicted first: those over their requests, then by priority, then by usage above the request.

Follows the rank functions of pkg/kubelet/eviction/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.common.model.pods import Pod
from agent.common.plan import demand
from agent.eviction.model import Candidate
from agent.eviction.plan.signals import (
    IMAGE_FS,
    IMAGE_INODES,
    INODES,
    MEMORY,
    NODE_FS,
    NODE_INODES,
    PIDS,
    RESOURCES,
    STORAGE,
)
from agent.stats.model import PodStats
from agent.stats.plan.summary import is_measured

LAYERS, LOGS, VOLUMES = "layers", "logs", "volumes"
_EVERYTHING = (LAYERS, LOGS, VOLUMES)
_RECLAIM = ("containers", "images")
_NODE_SIGNALS, _IMAGE_SIGNALS = (NODE_FS, NODE_INODES), (IMAGE_FS, IMAGE_INODES)


def ranked(candidates: Iterable[Candidate], signal: str, *, image_fs: bool) -> list[Candidate]:
    """The first one is evicted first. `image_fs`: images and layers have a file system of their own."""
    resource, parts = RESOURCES[signal], _measured(signal, image_fs)

    def key(one: Candidate) -> tuple[bool, bool, int, int]:
        # A pod whose usage is not known comes before all others.
        if one.usage is None or (resource in (STORAGE, INODES) and not is_measured(one.usage)):
            return False, False, one.pod.priority, 0
        used = use_of(one.usage, resource, parts)
        over = used - request_of(one.pod, resource)
        if resource == PIDS:
            return True, False, one.pod.priority, -used
        return True, not _exceeds(one.pod, used, resource), one.pod.priority, -over

    return sorted(candidates, key=key)


def reclaimable(signal: str, *, image_fs: bool) -> tuple[str, ...]:
    """What the node can free before it evicts a pod: dead containers, unused images."""
    if RESOURCES[signal] not in (STORAGE, INODES):
        return ()
    return () if image_fs and signal in _NODE_SIGNALS else _RECLAIM


def use_of(usage: PodStats, resource: str, parts: Iterable[str] = _EVERYTHING) -> int:
    """Bytes or pieces of a resource; `parts` of a disk."""
    if resource == MEMORY:
        return usage.sample.memory.working_set
    if resource == PIDS:
        return usage.sample.processes
    wanted, found = set(parts), 0
    inodes = resource == INODES
    for one in usage.containers:
        if LAYERS in wanted and one.layer is not None:
            found += one.layer.inodes_used if inodes else one.layer.used
        if LOGS in wanted and one.logs is not None:
            found += one.logs.inodes_used if inodes else one.logs.used
    for volume in usage.volumes:
        if VOLUMES in wanted and volume.ephemeral:
            found += volume.usage.inodes_used if inodes else volume.usage.used
    return found


def request_of(pod: Pod, resource: str) -> int:
    """The pod's request; there are none for inodes and processes."""
    name = STORAGE if resource == INODES else resource
    return int(demand.pod_requests(pod, only=(name,)).get(name, demand.ZERO))


def _exceeds(pod: Pod, used: int, resource: str) -> bool:
    return used > (0 if resource == INODES else request_of(pod, resource))


def _measured(signal: str, image_fs: bool) -> tuple[str, ...]:
    if not image_fs:
        return _EVERYTHING
    if signal in _NODE_SIGNALS:
        return LOGS, VOLUMES
    return (LAYERS,) if signal in _IMAGE_SIGNALS else _EVERYTHING
