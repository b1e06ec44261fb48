"""CSI volumes grow by NodeExpandVolume of their drivers, online, while the pod runs."""

from __future__ import annotations

import asyncio
from functools import partial

from agent.volumes.model.csi import EXPAND
from agent.volumes.plan.csi import expand_request
from agent.volumes.ports import CsiVolumeApi
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_volumes import CsiVolumes, MountedCsiVolume
from agent.volumes.work.growing import GrowingVolume


class CsiGrowth:
    """See GrowingVolumes. A driver that does not answer keeps no other from growing its volumes."""

    def __init__(self, volumes: CsiVolumes, drivers: CsiDrivers, api: CsiVolumeApi) -> None:
        self._volumes, self._drivers, self._api = volumes, drivers, api

    @property
    def new_mount(self) -> asyncio.Event:
        return self._volumes.new_mount

    def growing(self) -> list[GrowingVolume]:
        """The claimed volumes of drivers that can grow them."""
        able = {name for name, facts in self._drivers.facts.items() if EXPAND in facts.capabilities}
        found = [one for one in self._volumes.mounted_volumes() if one.volume.claim and one.volume.driver in able]
        return [self._growing(one) for one in found]

    def _growing(self, one: MountedCsiVolume) -> GrowingVolume:
        volume = one.volume
        group = f"CSI driver {volume.driver}"
        return GrowingVolume(one.pod, volume.spec_name, volume.claim, volume.read_only, group, partial(self._grow, one))

    async def _grow(self, one: MountedCsiVolume, size: int) -> bool:
        driver, facts = self._drivers.get(one.volume.driver)
        ref = one.volume.expand_secret
        secrets = await self._api.secret(ref) if ref is not None else {}
        staging = self._volumes.staging_of(one.volume)
        await driver.expand(
            expand_request(one.volume, facts, target=one.target, staging=staging, size=size, secrets=secrets)
        )
        return True
