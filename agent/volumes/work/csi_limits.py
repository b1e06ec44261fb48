"""How many volumes of each CSI driver the node can have: asked again every now and then, as its CSIDriver says.

Upstream: pkg/volume/csi/csi_node_updater.go (gate MutableCSINodeAllocatableCount).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from agent.common.work.jobs import Jobs
from agent.common.work.observable import Signal
from agent.volumes.model.csi import DueUpdate
from agent.volumes.plan.csi_node import due, update_period
from agent.volumes.work.csi_drivers import CsiDrivers
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_LONGEST_WAIT = 3600.0  # seconds
_RETRY = 10.0  # seconds, while CSIDrivers cannot be read


class DriverObjects(Protocol):
    """volumes/work/csi_objects.py CsiObjects. Raises ApiError or Temporary."""

    drivers_changed: Signal

    async def driver(self, name: str) -> Json | None: ...


class CsiLimits:
    """run() is long-lived. A driver that does not answer delays only its own next question."""

    def __init__(self, drivers: CsiDrivers, objects: DriverObjects, clock: Clock) -> None:
        self._drivers, self._objects, self._clock = drivers, objects, clock
        self._due: dict[str, DueUpdate] = {}
        self._asked: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        news, jobs = asyncio.Event(), Jobs()
        self._drivers.changed.follow(news.set)
        self._objects.drivers_changed.follow(news.set)
        try:
            while True:
                news.clear()
                wait = await self._round(jobs)
                await at_most(self._clock, wait, news)
        finally:
            self._drivers.changed.unfollow(news.set)
            self._objects.drivers_changed.unfollow(news.set)
            await jobs.close()

    async def exceeded(self, name: str) -> None:
        """Volumes of this driver cannot be attached for want of room: tell the scheduler at once what the driver says.

        Never raises; asks a driver at most every ten seconds.
        """
        now = self._clock.monotonic()
        if now - self._asked.get(name, float("-inf")) >= _RETRY:
            self._asked[name] = now
            await self._update(name)

    async def _round(self, jobs: Jobs) -> float:
        """Ask the drivers that are due. Returns the seconds until the next one is."""
        try:
            found = {name: update_period(await self._objects.driver(name)) for name in self._drivers.facts}
        except NodewrightError as error:
            log.warning("limits of CSI drivers: %s", error)
            return _RETRY
        now, before = self._clock.monotonic(), self._due
        self._due = due(now, {name: period for name, period in found.items() if period is not None}, before)
        self._asked = {name: at for name, at in self._asked.items() if name in found}
        for name in self._due:
            if name in before and before[name].at <= now and before[name].period == self._due[name].period:
                jobs.start(name, partial(self._update, name))
        return min((_LONGEST_WAIT, *(one.at - now for one in self._due.values())))

    async def _update(self, name: str) -> None:
        try:
            await self._drivers.update(name)
        except NodewrightError as error:
            log.warning("CSI driver %s: the CSINode keeps its old limit: %s", name, error)
