"""Put together what keeps a node from running out: eviction, removal of images. Called by the composition root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.build import derive
from agent.common.metrics_port import Figures
from agent.common.model.pods import ContainerState
from agent.common.ports import Events
from agent.common.work.observable import Observable
from agent.eviction.work.eviction import EvictionParts, Evictor
from agent.eviction.work.reclaim import NodeReclaim
from agent.images.work.image_gc import ImageCollector, ImageCollectorDeps
from agent.images.work.pull_records import PullRecords
from agent.node.work.node import NodeKeeper
from agent.pods.work.pod_table import PodTable
from agent.runtime.edge.cri import Cri
from agent.runtime.work.relist import Observer
from agent.settings import Settings
from agent.stats.work import StatsProvider
from nodelib.clock import Clock
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class EvictionDeps:
    """The parts that are made already."""

    settings: Settings
    clock: Clock
    cri: Cri
    events: Events
    figures: Figures
    keeper: NodeKeeper
    table: PodTable
    observer: Observer
    stats: StatsProvider
    pressures: Observable[tuple[str, ...]]
    pulls: PullRecords


@dataclass(frozen=True, slots=True)
class BuiltEviction:
    """`tasks()` are to be supervised, once the runtime and the sources have spoken."""

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


def build_eviction(around: EvictionDeps) -> BuiltEviction:
    """The node's conditions are told through `around.pressures`."""
    settings, clock = around.settings, around.clock

    def node_ref() -> dict[str, Any]:
        return around.keeper.ref

    def mounted() -> Iterator[tuple[str, ContainerState]]:
        for uid in around.observer.uids():
            for one in around.observer.seen(uid).containers:
                yield from ((name, one) for mount in one.mounts if (name := (mount.get("image") or {}).get("image")))

    async def ready() -> None:
        await around.table.synced.wait()
        await around.observer.audited.wait()

    images = ImageCollector(
        derive.image_gc_policy(settings),
        ImageCollectorDeps(
            around.cri, around.stats, around.events, around.figures, clock, node_ref, mounted, around.pulls.prune
        ),
    )
    evictor = Evictor(
        derive.eviction_policy(settings),
        EvictionParts(
            usage=around.stats,
            pods=around.table,
            garbage=NodeReclaim(around.table, images, clock),
            events=around.events,
            pressures=around.pressures,
            figures=around.figures,
            clock=clock,
            node_ref=node_ref,
        ),
    )
    return BuiltEviction(evictor, images, ready)
