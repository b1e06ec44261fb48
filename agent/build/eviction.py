"""Joins what keeps the node from running out of memory and disk: eviction and image garbage collection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.build import derive
from agent.build.base import Base
from agent.common.model.pods import ContainerState
from agent.eviction.work.eviction import EvictionDeps, Evictor
from agent.eviction.work.reclaim import NodeReclaim
from agent.images.work.image_gc import ImageCollector, ImageCollectorDeps
from agent.images.work.pull_records import PullRecords
from agent.node.work.node import NodeManager
from agent.runtime.work.observer import Observer
from agent.stats.work.provider import StatsProvider
from nodelib.json_values import Json
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class BuiltEviction:
    """`tasks()` wait for `ready`: the runtime and all sources of pods have been listed."""

    evictor: Evictor
    images: ImageCollector
    ready: Work

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {"eviction": self._evict, "image-gc": self._collect}

    async def _evict(self) -> None:
        await self.ready()
        await self.evictor.run()

    async def _collect(self) -> None:
        await self.ready()
        await self.images.run()


def build_eviction(
    base: Base, keeper: NodeManager, observer: Observer, stats: StatsProvider, pulls: PullRecords
) -> BuiltEviction:
    """The evictor sets the node's pressure conditions in `base.pressures`."""
    settings, clock, pods = base.settings, base.clock, base.pods

    def node_ref() -> Json:
        return keeper.ref

    def mounted() -> Iterator[tuple[str, ContainerState]]:
        for uid in observer.uids():
            for one in observer.seen(uid).containers:
                yield from ((name, one) for mount in one.mounts if (name := (mount.get("image") or {}).get("image")))

    async def ready() -> None:
        await pods.synced.wait()
        await observer.audited.wait()

    images = ImageCollector(
        settings.images.gc,
        ImageCollectorDeps(
            base.connections.cri, stats, base.events, base.metrics, clock, node_ref, mounted, pulls.prune
        ),
    )
    evictor = Evictor(
        derive.eviction_policy(settings),
        EvictionDeps(
            usage=stats,
            pods=pods,
            reclaim=NodeReclaim(pods, images, clock),
            events=base.events,
            pressures=base.pressures,
            metrics=base.metrics,
            clock=clock,
            node_ref=node_ref,
        ),
    )
    return BuiltEviction(evictor, images, ready)
