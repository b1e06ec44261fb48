"""What a node under pressure of disk can spare before any pod: records of dead containers, unused images."""

from __future__ import annotations

from agent.images.work.image_gc import ImageCollector
from agent.pods.work.registry import PodRegistry
from nodelib.clock import Clock

_LIMIT, _POLL = 10.0, 0.2  # seconds


class NodeReclaim:
    """eviction/work/eviction.py Garbage."""

    def __init__(self, pods: PodRegistry, images: ImageCollector, clock: Clock) -> None:
        self._pods, self._images, self._clock = pods, images, clock

    async def remove_dead_containers(self) -> None:
        """Of pods that have ended, all; of others, what their own workers have not removed by then."""
        left = _LIMIT
        while self._pods.drop_records() and left > 0:
            await self._clock.sleep(_POLL)
            left -= _POLL

    async def remove_unused_images(self) -> None:
        await self._images.remove_unused()
