"""How full CSI volumes are: NodeGetVolumeStats of their drivers, or else statfs (pkg/volume/csi/csi_metrics.go)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from agent.stats.model import FsUsage, VolumeStats
from agent.volumes.model.csi import STATS
from agent.volumes.plan.csi import usage_stats
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_volumes import CsiVolumes, MountedCsiVolume
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.threads import alone

log = logging.getLogger(__name__)

_MAX_AGE = 60.0  # seconds; upstream's volumeStatsAggPeriod
_TIMEOUT = 5.0  # seconds to wait for a driver

StatsByPod = Mapping[str, tuple[VolumeStats, ...]]


class CsiStats:
    """`filesystem(path)` is statfs; None when it fails."""

    def __init__(
        self, volumes: CsiVolumes, drivers: CsiDrivers, filesystem: Callable[[str], FsUsage | None], clock: Clock
    ) -> None:
        self._volumes, self._drivers, self._filesystem, self._clock = volumes, drivers, filesystem, clock
        self._known: dict[str, tuple[float, VolumeStats]] = {}
        self._silent: dict[str, float] = {}
        self._in_statfs: set[str] = set()

    async def by_pod(self) -> StatsByPod:
        """By pod UID, at most a minute old. Volumes of a driver that does not answer are left out."""
        mounted = self._volumes.mounted_volumes()
        targets = {one.target for one in mounted}
        self._known = {target: known for target, known in self._known.items() if target in targets}
        self._silent = {target: at for target, at in self._silent.items() if target in targets}
        await asyncio.gather(*(self._measure(one) for one in mounted))
        found: dict[str, tuple[VolumeStats, ...]] = {}
        for one in mounted:
            if one.target in self._known:
                found[one.pod.uid] = (*found.get(one.pod.uid, ()), self._known[one.target][1])
        return found

    def latest(self) -> list[tuple[tuple[str, str], FsUsage]]:
        """((namespace, claim), usage) as last measured."""
        return [
            ((one.pod.namespace, one.volume.claim), self._known[one.target][1].usage)
            for one in self._volumes.mounted_volumes()
            if one.volume.claim and one.target in self._known
        ]

    async def run(self) -> None:
        """Until cancelled: keep the stats fresh for scrapes of the metrics."""
        while True:
            await self.by_pod()
            await self._clock.sleep(_MAX_AGE)

    async def _measure(self, one: MountedCsiVolume) -> None:
        now = self._clock.monotonic()
        known = self._known.get(one.target)
        tried = max(known[0] if known else float("-inf"), self._silent.get(one.target, float("-inf")))
        if now - tried < _MAX_AGE:
            return  # nor is a driver that hangs asked at each call
        try:
            async with asyncio.timeout(_TIMEOUT):
                usage = await self._usage(one)
        except (NodewrightError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._silent[one.target] = now
            log.debug("volume %s of %s could not be measured: %s", one.volume.handle, one.volume.driver, error)
            return
        if usage is not None:
            self._known[one.target] = now, VolumeStats(one.volume.name, usage, claim=one.volume.claim)

    async def _usage(self, one: MountedCsiVolume) -> FsUsage | None:
        facts = self._drivers.facts.get(one.volume.driver)
        if facts is not None and STATS in facts.capabilities:
            driver, _ = self._drivers.get(one.volume.driver)
            fields = usage_stats(await driver.usage(one.volume.handle, one.target))
            return FsUsage(at=int(self._clock.now() * 1e9), **fields) if fields else None
        if one.volume.block or one.target in self._in_statfs:
            return None  # a statfs that hangs must not be started a second time
        self._in_statfs.add(one.target)
        return await alone(self._statfs, one.target)

    def _statfs(self, target: str) -> FsUsage | None:
        try:
            return self._filesystem(target)
        finally:
            self._in_statfs.discard(target)
