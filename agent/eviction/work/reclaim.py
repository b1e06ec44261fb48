"""What the node can free before it evicts a pod: records of dead containers, unused images (pkg/kubelet/eviction)."""

from __future__ import annotations

from typing import Protocol

from agent.common.work.observable import until_within
from agent.pods.work.registry import PodRegistry
from nodelib.clock import Clock

_LIMIT = 10.0  # seconds


class Images(Protocol):
    """images/work/image_gc.py ImageCollector."""

    async def remove_unused(self) -> None: ...


class NodeReclaim:
    """eviction/work/eviction.py Reclaimer."""

    def __init__(self, pods: PodRegistry, images: Images, clock: Clock) -> None:
        self._pods, self._images, self._clock = pods, images, clock

    async def remove_dead_containers(self) -> None:
        """Remove the containers of pods that have ended; return when none is left, after 10 s at the latest."""
        await until_within(self._pods.cleaned_up, lambda: not self._pods.drop_records(), self._clock, _LIMIT)

    async def remove_unused_images(self) -> None:
        """Remove every image that no container uses. Raises NodewrightError."""
        await self._images.remove_unused()
