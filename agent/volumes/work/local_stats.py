"""How full local PersistentVolumes are: statfs of what their pods are given (MetricsStatFS of pkg/volume)."""

from __future__ import annotations

from collections.abc import Callable

from agent.stats.model import FsUsage, VolumeStats
from agent.volumes.work.local_volumes import LocalVolumes
from nodelib.threads import alone

StatsByPod = dict[str, tuple[VolumeStats, ...]]


class LocalStats:
    """`filesystem(path)` is statfs; None when it fails. A raw device has no file system to measure."""

    def __init__(self, volumes: LocalVolumes, filesystem: Callable[[str], FsUsage | None]) -> None:
        self._volumes, self._filesystem = volumes, filesystem

    async def by_pod(self) -> StatsByPod:
        """By pod UID."""
        return await alone(self._by_pod)

    def latest(self) -> list[tuple[tuple[str, str], FsUsage]]:
        """((namespace, claim), usage). Blocks: call it in a thread."""
        return [
            ((one.pod.namespace, one.volume.claim), usage)
            for one in self._volumes.in_use()
            if one.volume.claim and (usage := self._filesystem(one.path)) is not None
        ]

    def _by_pod(self) -> StatsByPod:
        found: StatsByPod = {}
        for one in self._volumes.in_use():
            usage = self._filesystem(one.path)
            if usage is not None:
                stats = VolumeStats(one.volume.name, usage, claim=one.volume.claim)
                found[one.uid] = (*found.get(one.uid, ()), stats)
        return found
