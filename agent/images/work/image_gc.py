"""The image collector: removes images when their disk is nearly full, when they are too old, or under disk pressure.

It runs every five minutes, as upstream's image GC manager, and records which images are in use.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from agent.common.metrics import Metrics
from agent.common.model.pods import ContainerState, ImageFacts
from agent.common.ports import Events
from agent.images.model.images import Collected, HeldImage, ImageReport
from agent.images.plan import image_gc as plan
from agent.images.plan import image_holds as holds
from agent.images.plan.image_gc import ImageGcPolicy, ImageRecord
from agent.stats.model import NodeStats
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json

log = logging.getLogger(__name__)

INTERVAL = 300.0  # seconds; upstream's ImageGCPeriod


class ImageStore(Protocol):
    """The calls to the runtime (runtime/edge/cri.py)."""

    async def list_images(self) -> tuple[ImageFacts, ...]: ...

    async def remove_image(self, reference: str) -> None: ...

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]: ...


class NodeUsage(Protocol):
    """stats/work.py StatsProvider."""

    async def node(self) -> NodeStats: ...


@dataclass(frozen=True, slots=True)
class ImageCollectorDeps:
    """What the collector works with.

    `mounted()`: ids of the images of image volumes, each with a container that mounts it; `prune(remaining, began)`:
    of the images that existed then, only these remain.
    """

    store: ImageStore
    usage: NodeUsage
    events: Events
    metrics: Metrics
    clock: Clock
    node_ref: Callable[[], Json]
    mounted: Callable[[], Iterable[tuple[str, ContainerState]]]
    prune: Callable[[Collection[str], float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Listing:
    """What the runtime listed at `now` (steady seconds)."""

    now: float
    containers: tuple[ContainerState, ...] = ()
    images: tuple[ImageFacts, ...] = ()
    mounted: tuple[tuple[str, ContainerState], ...] = ()

    @property
    def used(self) -> frozenset[str]:
        return plan.in_use(self.containers, (name for name, _ in self.mounted))


class ImageCollector:
    """Keeps the records of when images were used."""

    def __init__(self, policy: ImageGcPolicy, deps: ImageCollectorDeps) -> None:
        self._policy, self._deps = policy, deps
        self._records: plan.Records = {}
        self._began = deps.clock.steady()
        self._listing = _Listing(self._began)
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
            await self._deps.clock.sleep(INTERVAL)

    async def collect(self) -> None:
        """Remove images that are too old, and then enough to get below the low threshold. Raises NodewrightError."""
        now, free = await self._removable()
        if self._policy.off:
            return
        old = plan.too_old(free, self._policy, self._began, now)
        await self._remove(old, "age")
        disk = (await self._deps.usage.node()).image_fs
        if disk is None or not disk.capacity:
            self._warn("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
            raise Temporary("its size is not known", obj="image file system", step="collect images")
        wanted = plan.bytes_to_free(self._policy, disk.capacity, disk.available)
        if not wanted:
            return
        rest = [one for one in free if one not in old]
        freed = await self._remove(plan.old_enough(rest, self._policy, now), "space", wanted)
        if freed < wanted:
            # The listing from before the removal is fine: nothing held what was removed.
            kept = holds.holds_text(self._held(self._listing, self._records))
            message = plan.not_enough(disk.capacity, disk.available, freed, kept)
            self._warn("FreeDiskSpaceFailed", message)
            if self._last is not None:
                self._last = replace(self._last, problem=message)
            raise Temporary(message, obj="image file system", step="collect images")

    async def remove_unused(self) -> None:
        """Remove all unused images, for a node under disk pressure. Raises NodewrightError."""
        now, free = await self._removable()
        await self._remove(plan.old_enough(free, self._policy, now), "space")

    async def report(self) -> ImageReport:
        """What holds each image and what a collection would do. Changes nothing. Raises NodewrightError."""
        listing = await self._list()
        disk = (await self._deps.usage.node()).image_fs
        capacity, available = (disk.capacity, disk.available) if disk is not None else (0, 0)
        wanted = plan.bytes_to_free(self._policy, capacity, available) if capacity and not self._policy.off else 0
        records = plan.noted(self._records, listing.images, listing.used, listing.now)
        return ImageReport(
            node=str(self._deps.node_ref().get("name", "")),
            at=self._deps.clock.now(),
            capacity=capacity,
            available=available,
            high=self._policy.high,
            low=self._policy.low,
            to_free=wanted,
            images=tuple(self._shown(one) for one in self._held(listing, records)),
            last=self._last,
        )

    def _shown(self, one: HeldImage) -> HeldImage:
        """With times of the wall clock."""
        ahead = self._deps.clock.now() - self._deps.clock.steady()
        return replace(one, detected=one.detected + ahead, used=one.used + ahead if one.used else 0.0)

    def _held(self, listing: _Listing, records: plan.Records) -> tuple[HeldImage, ...]:
        using = holds.users(listing.containers, listing.mounted)
        return holds.held(listing.images, records, using, self._policy, listing.now)

    async def _list(self) -> _Listing:
        containers = await self._deps.store.list_containers()
        images = await self._deps.store.list_images()
        return _Listing(self._deps.clock.steady(), containers, images, tuple(self._deps.mounted()))

    async def _removable(self) -> tuple[float, list[ImageRecord]]:
        self._listing = await self._list()
        now = self._listing.now
        self._records = plan.noted(self._records, self._listing.images, self._listing.used, now)
        return now, plan.removable(self._records, now)

    async def _remove(self, images: list[ImageRecord], reason: str, enough: int | None = None) -> int:
        """Returns the bytes that were freed; stops at `enough`. Skips images that cannot be removed."""
        freed, removed, began = 0, list[str](), self._deps.clock.now()
        failures: list[NodewrightError] = []
        for one in images:
            if enough is not None and freed >= enough:
                break
            try:
                await self._deps.store.remove_image(one.id)
            except NodewrightError as error:
                failures.append(error)
                continue
            freed += one.size
            removed.append(one.id)
            log.info("image %s was removed (%s): %d bytes", one.id, reason, one.size)
        if removed or failures or enough:
            problem = str(failures[0]) if failures else ""
            self._last = Collected(began, enough or 0, freed, self._named(removed), problem)
        if removed:
            self._deps.metrics.image_garbage_collected.labels(reason).inc(len(removed))
            await self._deps.prune(self._records.keys() - set(removed), began)
        if failures:
            raise Temporary(
                f"freed {freed} bytes; {len(failures)} images could not be removed, the first: {failures[0]}",
                obj="images",
                step="remove unused",
                action="See the container runtime's log; the agent tries again.",
            ) from failures[0]
        return freed

    def _named(self, ids: list[str]) -> tuple[str, ...]:
        names = {one.id: (*one.repo_tags, *one.repo_digests, one.id)[0] for one in self._listing.images}
        return tuple(names.get(one, one) for one in ids)

    def _warn(self, reason: str, message: str) -> None:
        self._deps.events.emit(self._deps.node_ref(), "Warning", reason, message)
