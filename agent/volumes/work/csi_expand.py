"""Grow mounted CSI volumes whose claims ask for more (NodeExpandVolume), online, while the pod runs.

A node may get the claims of its pods but not watch them: they are read every few seconds, and at once after a mount.
Follows pkg/volume/util/operationexecutor/node_expander.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from agent.common.model.errors import PluginError
from agent.common.ports import Events
from agent.common.work.jobs import Jobs
from agent.volumes.model.csi import EXPAND
from agent.volumes.plan import csi_expand as plan
from agent.volumes.plan.csi import expand_request
from agent.volumes.ports import CsiClaimApi
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_volumes import CsiVolumes, MountedCsiVolume
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

_INTERVAL = 10.0  # seconds


class CsiExpander:
    """run() is long-lived."""

    def __init__(
        self, volumes: CsiVolumes, drivers: CsiDrivers, api: CsiClaimApi, events: Events, clock: Clock
    ) -> None:
        self._volumes, self._drivers, self._api = volumes, drivers, api
        self._events, self._clock = events, clock
        self._last_failure: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        jobs = Jobs()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL):
                        await self._volumes.new_mount.wait()
                self._volumes.new_mount.clear()
                by_driver: dict[str, list[MountedCsiVolume]] = {}
                for one in self._expandable():
                    by_driver.setdefault(one.volume.driver, []).append(one)
                for driver, volumes in by_driver.items():
                    # A driver that does not answer keeps no other from growing its volumes.
                    jobs.start(("expand", driver), partial(self._expand_all, volumes))
        finally:
            await jobs.close()

    async def _expand_all(self, volumes: list[MountedCsiVolume]) -> None:
        for one in volumes:
            try:
                await self._expand_if_asked(one)
            except NodewrightError as error:
                self._report_failure(one, str(error))

    def _expandable(self) -> list[MountedCsiVolume]:
        """Each claimed volume once, whichever of the pods that share it: it needs to grow only once."""
        able = {name for name, facts in self._drivers.facts.items() if EXPAND in facts.capabilities}
        found = {one.volume.key: one for one in self._volumes.mounted_volumes() if one.volume.claim}
        return [one for one in found.values() if one.volume.driver in able]

    async def _expand_if_asked(self, one: MountedCsiVolume) -> None:
        namespace, name = one.pod.namespace, one.volume.claim
        claim = await self._api.claim(namespace, name)
        if claim is None or not plan.asks_for_more(claim):
            return
        volume = await self._api.volume(one.volume.spec_name)
        size = plan.wanted_size(claim, volume) if volume is not None else 0
        if volume is None or not size:
            return
        await self._api.patch_claim(namespace, name, plan.in_progress())
        try:
            await self._expand(one, size)
        except PluginError as error:
            if plan.is_infeasible(error.code):
                stamp = format_rfc3339(self._clock.now())
                await self._api.patch_claim(namespace, name, plan.infeasible(error.message, stamp))
            raise
        await self._api.patch_claim(namespace, name, plan.done(claim, volume))
        self._last_failure.pop((one.pod.uid, one.volume.name), None)
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{one.volume.spec_name}"'
        self._events.emit(one.pod.raw, "Normal", "FileSystemResizeSuccessful", text)

    async def _expand(self, one: MountedCsiVolume, size: int) -> None:
        driver, facts = self._drivers.get(one.volume.driver)
        ref = one.volume.expand_secret
        secrets = await self._api.secret(ref) if ref is not None else {}
        staging = self._volumes.staging_of(one.volume)
        request = expand_request(one.volume, facts, target=one.target, staging=staging, size=size, secrets=secrets)
        await driver.expand(request)

    def _report_failure(self, one: MountedCsiVolume, message: str) -> None:
        """Emit one event for each new cause."""
        key = (one.pod.uid, one.volume.name)
        if self._last_failure.get(key) != message:
            self._last_failure[key] = message
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{one.volume.spec_name}": {message}'
            self._events.emit(one.pod.raw, "Warning", "VolumeResizeFailed", text)
