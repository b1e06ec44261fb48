"""A CSI volume that grew while no pod used it grows on the node before its next pod begins.

The driver is asked after NodePublishVolume, as upstream's kubelet does (expandVolumeDuringMount). One that cannot grow
what is in use says FAILED_PRECONDITION. Upstream then gives up and lets the pod begin with the old size; the CSI
specification says to take the volume off the node and to ask again, which can be done as long as no container has it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.volumes.model.csi import EXPAND, CsiVolume, DriverFacts
from agent.volumes.plan import csi as plan
from agent.volumes.plan import expand
from agent.volumes.ports import CsiVolumeApi
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.growing import GrowingVolume
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)


class CsiGrower:
    """Makes volumes of CSI drivers grow by NodeExpandVolume."""

    def __init__(self, drivers: CsiDrivers, api: CsiVolumeApi, expansion: Expansion) -> None:
        self._drivers, self._api, self._expansion = drivers, api, expansion

    def growing(self, pod: Pod, volume: CsiVolume, target: str, staging: str) -> GrowingVolume:
        """The volume as it is mounted for this pod."""

        async def grow(size: int) -> bool:
            driver, facts = self._drivers.get(volume.driver)
            ref = volume.expand_secret
            secrets = await self._api.secret(ref) if ref is not None else {}
            await driver.expand(
                plan.expand_request(volume, facts, target=target, staging=staging, size=size, secrets=secrets)
            )
            return True

        group = f"{pod.namespace}: CSI driver {volume.driver}"  # one that hangs holds up no other namespace's
        return GrowingVolume(pod, volume.spec_name, volume.claim, volume.read_only, group, grow)

    async def before_start(
        self, one: GrowingVolume, volume: CsiVolume, facts: DriverFacts, remount: Callable[[], Awaitable[bool]]
    ) -> None:
        """Raises NodewrightError: the pod must not begin yet. Does nothing for a volume that has the size of its claim.

        `remount()` takes the volume off the node and mounts it again, unless another pod has it (False).
        """
        if EXPAND not in facts.capabilities or not plan.grew_unused(volume):
            return
        if not await self._has_grown(one) and await remount() and not await self._has_grown(one):
            log.info("volume %s: CSI driver %s does not grow it on this node", one.spec_name, volume.driver)

    async def _has_grown(self, one: GrowingVolume) -> bool:
        """False: the driver says that it cannot grow it where it is mounted. Raises NodewrightError."""
        try:
            wanted = await self._expansion.wanted(one, is_new=True)
            if wanted is not None:
                await self._expansion.grow(one, wanted)
        except NodewrightError as error:
            if isinstance(error, PluginError) and expand.is_in_use(error.code):
                return False
            error.message = f"it has to grow first: {error.message}"
            raise
        return True
