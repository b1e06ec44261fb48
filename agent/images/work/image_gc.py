"""Images removed when their disk is nearly full, when they are too old, or when a node under pressure asks.

Every five minutes, as upstream's image manager; what is in use is noted at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from agent.common.metrics import Metrics
from agent.common.model.pods import ContainerState, ImageFacts, Json
from agent.common.ports import Events
from agent.images.model.images import Collected, HeldImage, ImageReport
from agent.images.plan import image_gc as plan
from agent.images.plan import image_holds as holds
from agent.images.plan.image_gc import ImageGcPolicy, ImageRecord
from agent.stats.model import NodeStats
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary

log = logging.getLogger(__name__)

INTERVAL = 300.0  # seconds; upstream's ImageGCPeriod


class ImageStore(Protocol):
    """The calls of the runtime that are needed (runtime/edge/cri.py)."""

    async def list_images(self) -> tuple[ImageFacts, ...]: ...

    async def remove_image(self, reference: str) -> None: ...

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]: ...


class NodeUsage(Protocol):
    """stats/work.py StatsProvider."""

    async def node(self) -> NodeStats: ...


@dataclass(frozen=True, slots=True)
class CollectorParts:
    """What the collector works through. `mounted()`: ids of the images that image volumes show, each with a container
    that has the volume; `prune(left, began)`: only these images are left of those that there were then."""

    store: ImageStore
    usage: NodeUsage
    events: Events
    metrics: Metrics
    clock: Clock
    node_ref: Callable[[], Json]
    mounted: Callable[[], Iterable[tuple[str, ContainerState]]]
    prune: Callable[[Collection[str], float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Look:
    now: float
    containers: tuple[ContainerState, ...] = ()
    images: tuple[ImageFacts, ...] = ()
    mounted: tuple[tuple[str, ContainerState], ...] = ()

    @property
    def used(self) -> frozenset[str]:
        return plan.in_use(self.containers, (name for name, _ in self.mounted))


class ImageCollector:
    """Owner of the records of when images were used."""

    def __init__(self, policy: ImageGcPolicy, parts: CollectorParts) -> None:
        self._policy, self._parts = policy, parts
        self._records: plan.Records = {}
        self._began = parts.clock.now()
        self._look = _Look(self._began)
        self._last: Collected | None = None

    async def run(self) -> None:
        """Until cancelled."""
        failed_before = False
        while True:
            try:
                await self.collect()
                failed_before = False
            except NodewrightError as error:
                log.warning("image garbage collection: %s", error)
                if failed_before:
                    self._warn("ImageGCFailed", error.message)
                failed_before = True
            await self._parts.clock.sleep(INTERVAL)

    async def collect(self) -> None:
        """Remove what is too old, and what it takes to come below the low threshold. Raises NodewrightError."""
        now, free = await self._removable()
        if self._policy.off:
            return
        old = plan.too_old(free, self._policy, self._began, now)
        await self._remove(old, "age")
        disk = (await self._parts.usage.node()).image_fs
        if disk is None or not disk.capacity:
            self._warn("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
            raise Temporary("its size is not known", obj="image file system", step="collect images")
        wanted = plan.bytes_to_free(self._policy, disk.capacity, disk.available)
        if not wanted:
            return
        rest = [one for one in free if one not in old]
        freed = await self._remove(plan.old_enough(rest, self._policy, now), "space", wanted)
        if freed < wanted:
            # Of those that there were; what was removed is held by nothing.
            kept = holds.told(self._held(self._look, self._records))
            message = plan.not_enough(disk.capacity, disk.available, freed, kept)
            self._warn("FreeDiskSpaceFailed", message)
            if self._last is not None:
                self._last = replace(self._last, problem=message)
            raise Temporary(message, obj="image file system", step="collect images")

    async def remove_unused(self) -> None:
        """Remove all that nothing uses, for a node that is short of disk. Raises NodewrightError."""
        now, free = await self._removable()
        await self._remove(plan.old_enough(free, self._policy, now), "space")

    async def report(self) -> ImageReport:
        """What holds each image and what a collection would do; nothing is removed or noted. Raises NodewrightError."""
        look = await self._looked()
        disk = (await self._parts.usage.node()).image_fs
        capacity, available = (disk.capacity, disk.available) if disk is not None else (0, 0)
        wanted = plan.bytes_to_free(self._policy, capacity, available) if capacity and not self._policy.off else 0
        return ImageReport(
            node=str(self._parts.node_ref().get("name", "")),
            at=look.now,
            capacity=capacity,
            available=available,
            high=self._policy.high,
            low=self._policy.low,
            to_free=wanted,
            images=self._held(look, plan.noted(self._records, look.images, look.used, look.now)),
            last=self._last,
        )

    def _held(self, look: _Look, records: plan.Records) -> tuple[HeldImage, ...]:
        using = holds.users(look.containers, look.mounted)
        return holds.held(look.images, records, using, self._policy, look.now)

    async def _looked(self) -> _Look:
        containers = await self._parts.store.list_containers()
        images = await self._parts.store.list_images()
        return _Look(self._parts.clock.now(), containers, images, tuple(self._parts.mounted()))

    async def _removable(self) -> tuple[float, list[ImageRecord]]:
        self._look = await self._looked()
        now = self._look.now
        self._records = plan.noted(self._records, self._look.images, self._look.used, now)
        return now, plan.removable(self._records, now)

    async def _remove(self, images: list[ImageRecord], reason: str, enough: int | None = None) -> int:
        """Bytes that were freed; `enough`: how many are wanted. Goes on past an image that cannot be removed."""
        freed, removed, began = 0, list[str](), self._parts.clock.now()
        failures: list[NodewrightError] = []
        for one in images:
            if enough is not None and freed >= enough:
                break
            try:
                await self._parts.store.remove_image(one.id)
            except NodewrightError as error:
                failures.append(error)
                continue
            freed += one.size
            removed.append(one.id)
            log.info("image %s is removed (%s): %d bytes", one.id, reason, one.size)
        if removed or failures or enough:
            problem = str(failures[0]) if failures else ""
            self._last = Collected(began, enough or 0, freed, self._named(removed), problem)
        if removed:
            self._parts.metrics.image_garbage_collected.labels(reason).inc(len(removed))
            await self._parts.prune(self._records.keys() - set(removed), began)
        if failures:
            raise Temporary(
                f"freed {freed} bytes; {len(failures)} images could not be removed, the first: {failures[0]}",
                obj="images",
                step="remove unused",
                action="See the container runtime's log; it is tried again.",
            ) from failures[0]
        return freed

    def _named(self, ids: list[str]) -> tuple[str, ...]:
        names = {one.id: (*one.repo_tags, *one.repo_digests, one.id)[0] for one in self._look.images}
        return tuple(names.get(one, one) for one in ids)

    def _warn(self, reason: str, message: str) -> None:
        self._parts.events.emit(self._parts.node_ref(), "Warning", reason, message)
