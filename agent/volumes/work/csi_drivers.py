"""The CSI drivers of this node: registered with the Node and its CSINode, and handed to who needs one.

A driver that has left stays in the CSINode's view of upstream only as long as its socket: pods' volumes stand on
without it, and it is missed only when something is to be mounted or let go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.common.model.pods import Json
from agent.plugins.model import PluginInfo
from agent.volumes.model.csi import DriverFacts
from agent.volumes.plan.csi_node import check_driver, csi_node, node_patch
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)  # seconds between tries of a write that somebody else came before


class Driver(Protocol):
    """volumes/edge/csi_driver.py CsiDriver. Every call raises PluginError."""

    async def facts(self) -> DriverFacts: ...

    async def stage(self, request: Json) -> None: ...

    async def unstage(self, handle: str, path: str) -> None: ...

    async def publish(self, request: Json) -> None: ...

    async def unpublish(self, handle: str, target: str) -> None: ...

    async def expand(self, request: Json) -> int: ...

    async def usage(self, handle: str, path: str) -> list[Json]: ...

    async def close(self) -> None: ...


class NodeObjects(Protocol):
    """The part of edge/csi_objects.py that tells of this node. Every call raises ApiError."""

    async def node(self) -> Json: ...

    async def patch_node(self, patch: Json) -> None: ...

    async def csi_node(self) -> Json | None: ...

    async def write_csi_node(self, wanted: Json) -> None: ...


class CsiDrivers:
    """plugins/work.py PluginHandler for CSIPlugin. `dial(name, endpoint)` gives a Driver.

    `appeared()` is called when a driver has come.
    """

    def __init__(
        self, objects: NodeObjects, dial: Callable[[str, str], Driver], clock: Clock, appeared: Callable[[], None]
    ) -> None:
        self._objects, self._dial, self._clock, self._appeared = objects, dial, clock, appeared
        self._drivers: dict[str, tuple[Driver, DriverFacts]] = {}
        self._writing = asyncio.Lock()

    def get(self, name: str) -> tuple[Driver, DriverFacts]:
        """Raises Temporary when there is no such driver (now)."""
        found = self._drivers.get(name)
        if found is None:
            raise Temporary(
                f"driver name {name} not found in the list of registered CSI drivers",
                obj=f"CSI driver {name}",
                action="Start the driver's node plugin on this node (its DaemonSet); it is tried again.",
            )
        return found

    @property
    def facts(self) -> Mapping[str, DriverFacts]:
        """The registered drivers, by name."""
        return {name: facts for name, (_, facts) in self._drivers.items()}

    def validate(self, info: PluginInfo) -> None:
        check_driver(info.name, info.versions)

    async def register(self, info: PluginInfo) -> None:
        driver = self._dial(info.name, info.endpoint)
        try:
            facts = await driver.facts()
            if not facts.node_id:
                raise Permanent("NodeGetInfo gives no node_id", obj=f"CSI driver {info.name}", step="register")
            await self._write(info.name, facts)
        except BaseException:
            await driver.close()
            raise
        before = self._drivers.get(info.name)
        self._drivers[info.name] = driver, facts
        if before is not None:
            await before[0].close()
        self._appeared()

    async def deregister(self, info: PluginInfo) -> None:
        found = self._drivers.get(info.name)
        if found is None or found[1].endpoint != info.endpoint:
            return  # another one has taken its place
        del self._drivers[info.name]
        await found[0].close()
        try:
            await self._write(info.name, None)
        except NodewrightError as error:
            log.warning("CSI driver %s has left, but the Node still names it: %s", info.name, error)

    async def close(self) -> None:
        for driver, _ in self._drivers.values():
            await driver.close()
        self._drivers.clear()

    async def _write(self, name: str, facts: DriverFacts | None) -> None:
        """The Node first, then its CSINode: a scheduler that sees the latter may rely on the former."""
        async with self._writing:
            for pause in (*_PAUSES, None):
                try:
                    await self._write_once(name, facts)
                    return
                except ApiError as error:
                    if pause is None or not (error.is_conflict or error.is_already_exists or error.is_not_found):
                        raise
                await self._clock.sleep(pause)

    async def _write_once(self, name: str, facts: DriverFacts | None) -> None:
        node = await self._objects.node()
        patch = node_patch(node, name, facts)
        if patch:
            await self._objects.patch_node(patch)
        existing = await self._objects.csi_node()
        if existing is None and facts is None:
            return
        wanted = csi_node(existing, node, name, facts)
        if wanted is not None:
            await self._objects.write_csi_node(wanted)
