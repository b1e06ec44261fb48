"""How full CSI volumes are: as their drivers say, or else as the file system does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.stats.model import FsUsage, VolumeStats
from agent.volumes.model.csi import STATS
from agent.volumes.plan.csi import usage_figures
from agent.volumes.work.csi import CsiVolumes, Standing
from agent.volumes.work.csi_drivers import CsiDrivers
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.threads import alone

log = logging.getLogger(__name__)

_FRESH = 60.0  # seconds; upstream's volumeStatsAggPeriod
_PATIENCE = 5.0  # seconds that one answer waits for a driver

Figures = Mapping[str, tuple[VolumeStats, ...]]


class CsiStats:
    """`filesystem(path)` is statfs, None when it cannot be had."""

    def __init__(
        self, volumes: CsiVolumes, drivers: CsiDrivers, filesystem: Callable[[str], FsUsage | None], clock: Clock
    ) -> None:
        self._volumes, self._drivers, self._filesystem, self._clock = volumes, drivers, filesystem, clock
        self._known: dict[str, tuple[float, VolumeStats]] = {}
        self._asked: set[str] = set()

    async def figures(self) -> Figures:
        """By pod UID, at most a minute old. A driver that does not answer leaves its volumes out."""
        standing = self._volumes.standing()
        targets = {one.target for one in standing}
        self._known = {target: known for target, known in self._known.items() if target in targets}
        await asyncio.gather(*(self._look(one) for one in standing))
        found: dict[str, tuple[VolumeStats, ...]] = {}
        for one in standing:
            if one.target in self._known:
                found[one.pod.uid] = (*found.get(one.pod.uid, ()), self._known[one.target][1])
        return found

    def latest(self) -> list[tuple[tuple[str, str], FsUsage]]:
        """((namespace, claim), figures) as they were last had."""
        return [
            ((one.pod.namespace, one.volume.claim), self._known[one.target][1].usage)
            for one in self._volumes.standing()
            if one.volume.claim and one.target in self._known
        ]

    async def run(self) -> None:
        """Until cancelled: have figures that a scrape can show."""
        while True:
            await self.figures()
            await self._clock.sleep(_FRESH)

    async def _look(self, one: Standing) -> None:
        now = self._clock.monotonic()
        known = self._known.get(one.target)
        if known is not None and now - known[0] < _FRESH:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                usage = await self._measured(one)
        except (NodewrightError, TimeoutError) as error:
            log.debug("volume %s of %s is not measured: %s", one.volume.handle, one.volume.driver, error)
            return
        if usage is not None:
            self._known[one.target] = now, VolumeStats(one.volume.name, usage, claim=one.volume.claim)

    async def _measured(self, one: Standing) -> FsUsage | None:
        facts = self._drivers.facts.get(one.volume.driver)
        if facts is not None and STATS in facts.capabilities:
            driver, _ = self._drivers.get(one.volume.driver)
            told = usage_figures(await driver.usage(one.volume.handle, one.target))
            return replace(FsUsage(at=int(self._clock.now() * 1e9)), **told) if told else None
        if one.volume.block or one.target in self._asked:
            return None  # what hangs is not asked again beside itself
        self._asked.add(one.target)
        return await alone(self._ask, one.target)

    def _ask(self, target: str) -> FsUsage | None:
        try:
            return self._filesystem(target)
        finally:
            self._asked.discard(target)
