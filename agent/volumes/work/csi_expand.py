"""Grow mounted CSI volumes whose claims ask for more (NodeExpandVolume), online, without the pod noticing.

A node may get its pods' claims but not watch them: they are looked at from time to time, and at once after a mount.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from agent.common.model.errors import PluginError
from agent.common.model.pods import Json
from agent.common.ports import Events
from agent.volumes.model.csi import EXPAND, SecretRef
from agent.volumes.plan import csi_expand as plan
from agent.volumes.plan.csi import expand_request
from agent.volumes.work.csi import CsiVolumes, Standing
from agent.volumes.work.csi_drivers import CsiDrivers
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

_INTERVAL = 10.0  # seconds


class Claims(Protocol):
    """The part of edge/csi_objects.py that tells of claims. Every call raises ApiError or Temporary."""

    async def claim(self, namespace: str, name: str) -> Json | None: ...

    async def volume(self, name: str) -> Json | None: ...

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None: ...

    async def secret(self, ref: SecretRef) -> dict[str, str]: ...


class CsiExpander:
    """run() is long-lived."""

    def __init__(self, volumes: CsiVolumes, drivers: CsiDrivers, claims: Claims, events: Events, clock: Clock) -> None:
        self._volumes, self._drivers, self._claims = volumes, drivers, claims
        self._events, self._clock = events, clock
        self._said: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._volumes.mounted.wait()
            self._volumes.mounted.clear()
            for one in self._due():
                try:
                    await self._look(one)
                except NodewrightError as error:
                    self._failed(one, str(error))

    def _due(self) -> list[Standing]:
        """One of each volume: pods that share it need it grown once."""
        able = {name for name, facts in self._drivers.facts.items() if EXPAND in facts.capabilities}
        found = {one.volume.key: one for one in self._volumes.standing() if one.volume.claim}
        return [one for one in found.values() if one.volume.driver in able]

    async def _look(self, one: Standing) -> None:
        namespace, name = one.pod.namespace, one.volume.claim
        claim = await self._claims.claim(namespace, name)
        if claim is None or not plan.asks_for_more(claim):
            return
        volume = await self._claims.volume(one.volume.spec_name)
        size = plan.wanted_size(claim, volume) if volume is not None else 0
        if volume is None or not size:
            return
        await self._claims.patch_claim(namespace, name, plan.in_progress())
        try:
            await self._expand(one, size)
        except PluginError as error:
            if plan.is_infeasible(error.code):
                stamp = format_rfc3339(self._clock.now())
                await self._claims.patch_claim(namespace, name, plan.infeasible(error.message, stamp))
            raise
        await self._claims.patch_claim(namespace, name, plan.done(claim, volume))
        self._said.pop((one.pod.uid, one.volume.name), None)
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{one.volume.spec_name}"'
        self._events.emit(one.pod.raw, "Normal", "FileSystemResizeSuccessful", text)

    async def _expand(self, one: Standing, size: int) -> None:
        driver, facts = self._drivers.get(one.volume.driver)
        ref = one.volume.expand_secret
        secrets = await self._claims.secret(ref) if ref is not None else {}
        staging = self._volumes.staging_of(one.volume)
        request = expand_request(one.volume, facts, target=one.target, staging=staging, size=size, secrets=secrets)
        await driver.expand(request)

    def _failed(self, one: Standing, message: str) -> None:
        """Said once per cause."""
        key = (one.pod.uid, one.volume.name)
        if self._said.get(key) != message:
            self._said[key] = message
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{one.volume.spec_name}": {message}'
            self._events.emit(one.pod.raw, "Warning", "VolumeResizeFailed", text)
