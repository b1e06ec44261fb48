"""Stats on demand: one snapshot from cgroups, /proc, file systems and the runtime, shared by callers within 3 seconds.

Nothing runs between requests. The summary, the metrics and eviction read `snapshot()`. Sizes of logs and volumes and
the runtime's own numbers cost more and are only included with `storage=True`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from agent.common.ports import PodView
from agent.common.work.shared import Shared
from agent.runtime.ports import ImageService, RuntimeService
from agent.stats.model import (
    Details,
    FsUsage,
    Layer,
    NodeStats,
    PodStats,
    Snapshot,
    StatsSettings,
    Storage,
    VolumeStats,
)
from agent.stats.ports import CgroupReadings, MachineReadings
from agent.stats.work.collector import Collector
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.threads import alone

log = logging.getLogger(__name__)

_FRESH = 3.0  # seconds that a snapshot is shared
_OLDEST_BASE = 120.0  # seconds; a rate over a longer time says nothing about the present
_FIRST_BASE = 0.5  # seconds between two samples when there is no earlier one


async def _none_served() -> Mapping[str, tuple[VolumeStats, ...]]:
    return {}


@dataclass(frozen=True, slots=True)
class StatsSources:
    """Where stats come from; without `images` there is no image file system.

    `served()` returns volumes by pod UID whose CSI driver reports their usage; their files are not walked.
    `measured(source, seconds)`: as DiskUsage has it.
    """

    pods: PodView
    runtime: RuntimeService
    images: ImageService | None
    cgroups: CgroupReadings
    machine: MachineReadings
    served: Callable[[], Awaitable[Mapping[str, tuple[VolumeStats, ...]]]] = _none_served
    measured: Callable[[str, float], None] = lambda source, seconds: None


class StatsProvider:
    """Collects snapshots. At most one collection with storage, one without and one of details run at a time."""

    def __init__(self, settings: StatsSettings, sources: StatsSources, clock: Clock) -> None:
        self._runtime, self._images, self._machine = sources.runtime, sources.images, sources.machine
        self._served, self._clock = sources.served, clock
        self._collector = Collector(settings, sources.pods, sources.cgroups, sources.machine, clock, sources.measured)
        self._kept: dict[bool, tuple[float, Snapshot]] = {}
        self._under_way: dict[bool, Shared[Snapshot]] = {False: Shared(), True: Shared()}
        self._details_under_way: Shared[Details] = Shared()
        self._base: tuple[float, Mapping[str, tuple[int, int]]] = (float("-inf"), {})

    async def snapshot(self, *, storage: bool = False, rates: bool = False) -> Snapshot:
        """At most 3 s old. `rates`: with the CPU usage of an earlier moment, for which the first caller waits 0.5 s."""
        kept = self._kept.get(storage)
        if kept is not None and self._clock.monotonic() - kept[0] < _FRESH:
            return kept[1]
        return await self._under_way[storage].get(lambda: self._snapshot(storage=storage, rates=rates))

    async def with_layers(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with sizes of writable layers and the image file system, both from the runtime.

        Volumes are not touched: the server of one may be gone, and a call that reads it would hang.
        """
        layers, image_fs = await self._layers(), await self._image_fs()
        pods = (
            replace(pod, containers=tuple(replace(one, layer=layers.get(one.id)) for one in pod.containers))
            for pod in snapshot.pods
        )
        return replace(snapshot, node=replace(snapshot.node, image_fs=image_fs), pods=tuple(pods))

    async def details(self, snapshot: Snapshot) -> Details:
        """Details of a snapshot's containers, with sandboxes, and of the node's disks."""
        return await self._details_under_way.get(lambda: alone(self._collector.details, snapshot))

    async def node(self) -> NodeStats:
        """Memory, CPU, file systems and processes of the machine only: cheap enough for every few seconds."""
        image_fs = await self._image_fs()
        return await asyncio.to_thread(self._collector.node, image_fs)

    async def usage(self, uids: Collection[str], *, storage: bool = True) -> Mapping[str, PodStats]:
        """What these pods use now by UID. Nothing is cached except the sizes of volumes.

        Without `storage` neither their files nor the runtime and drivers are asked, which may take minutes.
        """
        return await alone(self._collector.usage, uids, await self._storage() if storage else None)

    async def _snapshot(self, *, storage: bool, rates: bool) -> Snapshot:
        if rates and self._clock.monotonic() - self._base[0] > _OLDEST_BASE:
            began = self._clock.monotonic()
            first = await asyncio.to_thread(self._collector.snapshot, None)
            self._base = (began, _usage(first))
            await self._clock.sleep(_FIRST_BASE)
        if storage:  # of pods' files, which may be millions, or on a server that is gone
            snapshot = await alone(self._collector.snapshot, await self._storage())
        else:
            snapshot = await asyncio.to_thread(self._collector.snapshot, None)
        now = self._clock.monotonic()
        snapshot = replace(snapshot, earlier=self._base[1] if now - self._base[0] <= _OLDEST_BASE else {})
        self._base = (now, _usage(snapshot))
        self._kept[storage] = (now, snapshot)
        return snapshot

    async def _storage(self) -> Storage:
        return Storage(await self._layers(), await self._image_fs(), await self._served())

    async def _layers(self) -> Mapping[str, Layer]:
        layers: dict[str, Layer] = {}
        try:
            for sandbox in await self._runtime.sandbox_stats():
                for entry in (sandbox.get("linux") or {}).get("containers") or ():
                    layer = _layer(entry.get("writable_layer") or {})
                    if layer is not None:
                        layers[entry["attributes"]["id"]] = layer
        except NodewrightError as error:
            log.warning("sizes of writable layers are missing from this answer: %s", error)
        return layers

    async def _image_fs(self) -> FsUsage | None:
        if self._images is None:
            return None
        try:
            info = await self._images.image_fs_info()
        except NodewrightError as error:
            log.warning("the image file system is missing from this answer: %s", error)
            return None
        if not info:
            return None
        found = self._machine.filesystem((info[0].get("fs_id") or {}).get("mountpoint", ""))
        return (
            replace(found, used=_value(info[0], "used_bytes"), inodes_used=_value(info[0], "inodes_used"))
            if found
            else None
        )


def _layer(usage: Json) -> Layer | None:
    # The runtime measures layers every few seconds; a timestamp of 0 means not yet.
    if not usage.get("timestamp"):
        return None
    return Layer(int(usage.get("timestamp", 0)), _value(usage, "used_bytes"), _value(usage, "inodes_used"))


def _value(usage: Json, key: str) -> int:
    return int((usage.get(key) or {}).get("value", 0))


def _usage(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    samples = [snapshot.node.sample, *snapshot.node.systems.values()]
    for pod in snapshot.pods:
        samples += [pod.sample, *(entry.sample for entry in pod.containers)]
    return {sample.path: (sample.at, sample.cpu.usage) for sample in samples}
