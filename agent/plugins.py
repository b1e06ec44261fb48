"""Put together what serves plugins of this node; called by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from agent.edge.csi_objects import CsiObjects
from agent.edge.plugins.csi_driver import CsiDriver
from agent.edge.plugins.registration import PluginSockets, Registrars
from agent.edge.tokens import TokenCache
from agent.edge.volumes.csi_disk import CsiDisk
from agent.model.node import NodeExtras
from agent.model.plugins import CSI_PLUGIN
from agent.work.csi import CsiEdges, CsiVolumes
from agent.work.csi_drivers import CsiDrivers
from agent.work.node import NodeKeeper
from agent.work.plugins import PluginDesk
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.kube.client import KubeClient

_PATIENCE = 10.0  # seconds that a volume waits for the Node to name it
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class BuiltPlugins:
    """`tasks()` are to be supervised, `close()` called at the end."""

    sockets: PluginSockets
    desk: PluginDesk
    objects: CsiObjects
    drivers: CsiDrivers
    csi: CsiVolumes

    def tasks(self) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """(name, work) of the long-lived tasks."""
        return [("plugins", self.desk.run), ("csi volumes", self.csi.run), *self.objects.tasks()]

    def extras(self) -> NodeExtras:
        """What the Node's status says of plugins."""
        return NodeExtras(volumes_in_use=tuple(sorted(self.csi.names_in_use())))

    async def close(self) -> None:
        await self.drivers.close()
        self.sockets.close()


async def build_plugins(
    client: KubeClient, root_dir: str, node: str, *, clock: Clock, keeper: NodeKeeper, settled: asyncio.Event
) -> BuiltPlugins:
    """`settled`: set once all pods of this node are known."""

    async def in_use(names: frozenset[str]) -> None:
        keeper.poke()
        until = clock.monotonic() + _PATIENCE
        while not names <= set(((keeper.node or {}).get("status") or {}).get("volumesInUse") or ()):
            if clock.monotonic() >= until:
                raise Temporary("the Node does not name the volume as in use yet", obj=f"Node {node}", step="attach")
            await clock.sleep(_PAUSE)

    objects = CsiObjects(client, TokenCache(client, clock), node)
    drivers = CsiDrivers(objects, CsiDriver, clock)
    csi = CsiVolumes(root_dir, node, CsiEdges(drivers, objects, CsiDisk(root_dir), clock, in_use, settled))
    await csi.load()
    sockets = PluginSockets(f"{root_dir}/plugins_registry")
    desk = PluginDesk(sockets, Registrars(), {CSI_PLUGIN: drivers}, clock)
    built = BuiltPlugins(sockets, desk, objects, drivers, csi)
    keeper.extras = built.extras
    return built
