"""The CSI drivers of this node: registered in the Node and its CSINode, and looked up by name.

A driver may leave while volumes of pods are mounted: it is needed again only to mount or unmount one. Follows
pkg/volume/csi/nodeinfomanager and csi_drivers_store.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from agent.common.work.observable import Signal
from agent.plugins.model import PluginInfo
from agent.volumes.model.csi import DriverFacts
from agent.volumes.plan.csi_node import check_driver, check_facts, csi_node, node_patch
from agent.volumes.ports import CsiDriver, CsiNodeApi
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_Instance = tuple[CsiDriver, DriverFacts]
_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)  # seconds between attempts to write while others write the same object


class CsiDrivers:
    """The PluginHandler of plugins/work.py for CSI drivers.

    `dial(name, endpoint)` connects to a driver; `on_registered()` is called once one is registered; `changed` fires
    when one has come or gone. Of several that register under one name the newest serves; if that leaves, the others
    have stayed.
    """

    def __init__(
        self, api: CsiNodeApi, dial: Callable[[str, str], CsiDriver], clock: Clock, on_registered: Callable[[], None]
    ) -> None:
        self._api, self._dial, self._clock, self._on_registered = api, dial, clock, on_registered
        self._instances: dict[str, list[_Instance]] = {}  # of a driver, the newest last: it is the one that is asked
        self._write_lock = asyncio.Lock()
        self.changed = Signal()

    def get(self, name: str) -> tuple[CsiDriver, DriverFacts]:
        """The driver and its facts. Raises Temporary when it is not registered now."""
        found = self._newest(name)
        if found is None:
            raise Temporary(
                f"driver name {name} not found in the list of registered CSI drivers",
                obj=f"CSI driver {name}",
                action="Start the driver's node plugin on this node (its DaemonSet); the agent tries again.",
            )
        return found

    @property
    def facts(self) -> Mapping[str, DriverFacts]:
        """The registered drivers, by name."""
        return {name: instances[-1][1] for name, instances in self._instances.items()}

    def validate(self, info: PluginInfo) -> None:
        check_driver(info.name, info.versions)

    async def register(self, info: PluginInfo) -> None:
        driver = self._dial(info.name, info.endpoint)
        try:
            facts = await driver.facts()
            check_facts(facts)
            await self._retried(partial(self._write_once, info.name, facts))
        except BaseException:
            await driver.close()
            raise
        before = self._take(info.name, info.endpoint)
        self._instances.setdefault(info.name, []).append((driver, facts))
        if before is not None:
            await before[0].close()
        self._on_registered()
        self.changed.fire()

    async def update(self, name: str) -> None:
        """Ask the driver again how many volumes the node can have, and write the answer to the CSINode.

        What pods need of the driver stays as it registered. Raises NodewrightError.
        """
        driver, known = self.get(name)
        facts = await driver.facts()
        check_facts(facts)
        if self._newest(name) != (driver, known):
            return  # another instance registered meanwhile: that has told more
        await self._retried(partial(self._write_csi_node, name, facts))

    async def deregister(self, info: PluginInfo) -> None:
        newest = self._newest(info.name)
        found = self._take(info.name, info.endpoint)
        if found is None:
            return
        self.changed.fire()
        await found[0].close()
        if found is not newest:
            return  # another instance has taken its place
        try:
            await self._retried(partial(self._write_newest, info.name))
        except NodewrightError as error:
            log.warning("CSI driver %s has left, but the Node still lists it: %s", info.name, error)

    async def close(self) -> None:
        for instances in self._instances.values():
            for driver, _ in instances:
                await driver.close()
        self._instances.clear()

    def _newest(self, name: str) -> _Instance | None:
        return next(reversed(self._instances.get(name, ())), None)

    def _take(self, name: str, endpoint: str) -> _Instance | None:
        """Remove the instance that serves there, if there is one."""
        instances = self._instances.get(name, [])
        found = next((one for one in instances if one[1].endpoint == endpoint), None)
        if found is not None:
            instances.remove(found)
            if not instances:
                del self._instances[name]
        return found

    async def _retried(self, write: Callable[[], Awaitable[None]]) -> None:
        async with self._write_lock:
            for pause in (*_PAUSES, None):
                try:
                    await write()
                    return
                except ApiError as error:
                    if pause is None or not (error.is_conflict or error.is_already_exists or error.is_not_found):
                        raise
                await self._clock.sleep(pause)

    async def _write_newest(self, name: str) -> None:
        """As it is now: another instance may have registered while this waited for its turn."""
        newest = self._newest(name)
        await self._write_once(name, newest[1] if newest is not None else None)

    async def _write_once(self, name: str, facts: DriverFacts | None) -> None:
        """The Node first, then its CSINode: a scheduler that sees the latter may rely on the former."""
        node = await self._api.node()
        patch = node_patch(node, name, facts)
        if patch:
            await self._api.patch_node(patch)
        await self._write_csi_node(name, facts, node)

    async def _write_csi_node(self, name: str, facts: DriverFacts | None, node: Json | None = None) -> None:
        node = node if node is not None else await self._api.node()
        existing = await self._api.csi_node()
        if existing is None and facts is None:
            return
        wanted = csi_node(existing, node, name, facts)
        if wanted is not None:
            await self._api.write_csi_node(wanted)
