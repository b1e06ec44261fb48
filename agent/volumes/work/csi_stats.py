"""How full CSI volumes are: NodeGetVolumeStats of their drivers, or else statfs (pkg/volume/csi/csi_metrics.go)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from agent.common.work.shared import Shared
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
_NEVER = float("-inf")
_AT_ONCE = 16  # volumes of a driver: somebody may have thousands

StatsByPod = Mapping[str, tuple[VolumeStats, ...]]


class CsiStats:
    """`filesystem(path)` is statfs; None when it fails. `measured(driver, seconds)`: how long one volume took."""

    def __init__(
        self,
        volumes: CsiVolumes,
        drivers: CsiDrivers,
        filesystem: Callable[[str], FsUsage | None],
        clock: Clock,
        measured: Callable[[str, float], None] = lambda driver, seconds: None,
    ) -> None:
        self._volumes, self._drivers, self._filesystem, self._clock = volumes, drivers, filesystem, clock
        self._measured = measured
        self._known: dict[str, tuple[float, VolumeStats]] = {}
        self._tried: dict[str, float] = {}  # and not measured
        self._in_statfs: set[str] = set()
        self._rounds = Shared[None]()

    async def by_pod(self) -> StatsByPod:
        """By pod UID, a minute old where drivers are quick. Volumes that were never measured are left out."""
        await self._rounds.get(self._measure_due)
        found: dict[str, tuple[VolumeStats, ...]] = {}
        for one in self._volumes.mounted_volumes():
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

    async def _measure_due(self) -> None:
        mounted = self._volumes.mounted_volumes()
        targets = {one.target for one in mounted}
        self._known = {target: known for target, known in self._known.items() if target in targets}
        self._tried = {target: at for target, at in self._tried.items() if target in targets}
        now = self._clock.monotonic()
        by_driver: dict[str, list[MountedCsiVolume]] = {}
        for one in mounted:
            if now - max(self._measured_at(one), self._tried.get(one.target, _NEVER)) >= _MAX_AGE:
                by_driver.setdefault(one.volume.driver, []).append(one)
        await asyncio.gather(*(self._measure_all(self._in_turns(due), now) for due in by_driver.values()))

    def _in_turns(self, due: Iterable[MountedCsiVolume]) -> list[MountedCsiVolume]:
        """The namespaces take turns, and of each the volume comes first whose value is the oldest."""
        numbers = Counter[str]()
        turns = []
        for one in sorted(due, key=self._measured_at):
            numbers[one.pod.namespace] += 1
            turns.append((numbers[one.pod.namespace], one))
        return [one for _, one in sorted(turns, key=lambda turn: turn[0])]

    def _measured_at(self, one: MountedCsiVolume) -> float:
        known = self._known.get(one.target)
        return known[0] if known is not None else _NEVER

    async def _measure_all(self, due: Sequence[MountedCsiVolume], now: float) -> None:
        """Volumes of one driver. If that takes too long, the others wait for their next turn: nor is a driver that
        hangs asked at each call."""
        left = iter(due)

        async def some() -> None:
            for one in left:
                await self._measure(one)

        try:
            async with asyncio.timeout(_TIMEOUT):
                await asyncio.gather(*(some() for _ in range(min(_AT_ONCE, len(due)))))
        except TimeoutError:
            self._tried |= {one.target: now for one in due if self._measured_at(one) < now}

    async def _measure(self, one: MountedCsiVolume) -> None:
        began = self._clock.monotonic()
        try:
            usage = await self._usage(one)
        except NodewrightError as error:
            log.debug("volume %s of %s could not be measured: %s", one.volume.handle, one.volume.driver, error)
            return
        finally:
            self._measured(one.volume.driver, self._clock.monotonic() - began)
        if usage is not None:
            self._known[one.target] = self._clock.monotonic(), VolumeStats(one.volume.name, usage, one.volume.claim)

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
