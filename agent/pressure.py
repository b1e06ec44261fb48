"""Put together what keeps a node from running out: eviction, removal of images. Called by the composition root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent import derive
from agent.edge.cri import Cri
from agent.figures import Figures
from agent.model.pods import ContainerState
from agent.ports import Events
from agent.settings import Settings
from agent.work.eviction import EvictionParts, Evictor
from agent.work.garbage import Spare
from agent.work.image_gc import CollectorParts, ImageCollector
from agent.work.node import NodeKeeper
from agent.work.pod_table import PodTable
from agent.work.pull_records import PullRecords
from agent.work.relist import Observer
from agent.work.stats import StatsProvider
from agent.work.told import Told
from nodelib.clock import Clock
from nodelib.tasks import Work


@dataclass(frozen=True, slots=True)
class Surroundings:
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
    pressures: Told[tuple[str, ...]]
    pulls: PullRecords


@dataclass(frozen=True, slots=True)
class BuiltPressure:
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


def build_pressure(around: Surroundings) -> BuiltPressure:
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
        CollectorParts(
            around.cri, around.stats, around.events, around.figures, clock, node_ref, mounted, around.pulls.prune
        ),
    )
    evictor = Evictor(
        derive.eviction_policy(settings),
        EvictionParts(
            usage=around.stats,
            pods=around.table,
            garbage=Spare(around.table, images, clock),
            events=around.events,
            pressures=around.pressures,
            figures=around.figures,
            clock=clock,
            node_ref=node_ref,
        ),
    )
    return BuiltPressure(evictor, images, ready)
