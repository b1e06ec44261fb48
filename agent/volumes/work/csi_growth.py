"""CSI volumes grow by NodeExpandVolume of their drivers, online, while the pod runs."""

from __future__ import annotations

import asyncio

from agent.volumes.model.csi import EXPAND
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_volumes import CsiVolumes, MountedCsiVolume
from agent.volumes.work.growing import GrowingVolume


class CsiGrowth:
    """See GrowingVolumes. A driver that does not answer keeps no other from growing its volumes."""

    def __init__(self, volumes: CsiVolumes, drivers: CsiDrivers, grower: CsiGrower) -> None:
        self._volumes, self._drivers, self._grower = volumes, drivers, grower

    @property
    def new_mount(self) -> asyncio.Event:
        return self._volumes.new_mount

    def growing(self) -> list[GrowingVolume]:
        """The claimed volumes of drivers that can grow them."""
        able = {name for name, facts in self._drivers.facts.items() if EXPAND in facts.capabilities}
        found = [one for one in self._volumes.mounted_volumes() if one.volume.claim and one.volume.driver in able]
        return [self._growing(one) for one in found]

    def _growing(self, one: MountedCsiVolume) -> GrowingVolume:
        return self._grower.growing(one.pod, one.volume, one.target, self._volumes.staging_of(one.volume))
