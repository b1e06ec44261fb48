"""Build the plugin manager and what serves its plugins: CSI, devices, DRA and podresources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.ports import Events
from agent.devices.edge.device_plugin import DevicePluginEndpoint, DevicePluginServer
from agent.devices.edge.dra_driver import DraDriver
from agent.devices.edge.dra_objects import DraObjects
from agent.devices.edge.pod_resources import PodResourcesServer
from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.devices.work.devices import DeviceHooks, DeviceManager
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.devices.work.pod_resources import PodResources
from agent.managers.work import ResourceManagers
from agent.node.work.node import NodeKeeper
from agent.plugins.edge.registration import PluginSockets, RegistrationClient
from agent.plugins.model import CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN, NodeExtras
from agent.plugins.work import PluginHandler, PluginManager
from agent.pods.work.pod_table import PodTable
from agent.stats.edge.readings import filesystem
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.edge.csi_driver import CsiDriver
from agent.volumes.work.csi import CsiEdges, CsiVolumes
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_expand import CsiExpander
from agent.volumes.work.csi_objects import CsiObjects
from agent.volumes.work.csi_stats import CsiStats
from agent.volumes.work.tokens import TokenCache
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.kube.client import KubeClient
from nodelib.tasks import Work

_PATIENCE = 10.0  # seconds that a volume waits for the Node to list it
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class BuiltPlugins:
    """Supervise `tasks()`; call close() at the end."""

    sockets: PluginSockets
    manager: PluginManager
    objects: CsiObjects
    drivers: CsiDrivers
    csi: CsiVolumes
    csi_stats: CsiStats
    expander: CsiExpander
    device_server: DevicePluginServer
    devices: DeviceManager
    claims: DraManager
    pod_resources: PodResourcesServer

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [
            ("plugins", self.manager.run),
            ("csi volumes", self.csi.run),
            ("csi figures", self.csi_stats.run),
            ("csi expansion", self.expander.run),
            ("devices", self.devices.run),
            ("resource claims", self.claims.run),
            ("device plugins", self._serve_device_plugins),
            ("pod resources", self.pod_resources.run),
            *self.objects.tasks(),
        ]

    def extras(self) -> NodeExtras:
        """What plugins add to the Node's status."""
        return replace(self.devices.extras(), volumes_in_use=tuple(sorted(self.csi.names_in_use())))

    async def _serve_device_plugins(self) -> None:
        await self.device_server.run(self.devices.connect)

    async def close(self) -> None:
        await self.drivers.close()
        await self.claims.close()
        self.sockets.close()


async def build_plugins(
    client: KubeClient,
    root_dir: str,
    node: str,
    *,
    clock: Clock,
    keeper: NodeKeeper,
    table: PodTable,
    managers: ResourceManagers,
    events: Events,
    figures: PodResourcesMetrics,
) -> BuiltPlugins:
    """Reads the files about volumes and devices of an earlier agent. Raises Temporary."""
    objects = CsiObjects(client, TokenCache(client, clock), node)
    drivers = CsiDrivers(objects, CsiDriver, clock, table.retry_blocked)
    in_use = _in_use(node, keeper, clock)
    csi = CsiVolumes(root_dir, node, CsiEdges(drivers, objects, CsiDisk(root_dir), clock, in_use, table.synced))
    await csi.load()
    devices = _devices(f"{root_dir}/device-plugins", clock, keeper, table, managers)
    await devices.load()
    claims = _claims(client, root_dir, node, clock, table)
    await claims.load()
    sockets = PluginSockets(f"{root_dir}/plugins_registry")
    handlers: dict[str, PluginHandler] = {CSI_PLUGIN: drivers, DEVICE_PLUGIN: devices, DRA_PLUGIN: claims}
    answers = PodResources(table, devices, claims, managers)
    built = BuiltPlugins(
        sockets=sockets,
        manager=PluginManager(sockets, RegistrationClient(), handlers, clock),
        objects=objects,
        drivers=drivers,
        csi=csi,
        csi_stats=CsiStats(csi, drivers, filesystem, clock),
        expander=CsiExpander(csi, drivers, objects, events, clock),
        device_server=DevicePluginServer(f"{root_dir}/device-plugins"),
        devices=devices,
        claims=claims,
        pod_resources=PodResourcesServer(
            f"{root_dir}/pod-resources/kubelet.sock", answers.methods(), figures, monotonic=clock.monotonic
        ),
    )
    keeper.extras = built.extras
    return built


def _devices(
    folder: str, clock: Clock, keeper: NodeKeeper, table: PodTable, managers: ResourceManagers
) -> DeviceManager:
    def active() -> set[str] | None:
        return {pod.uid for pod in table.active()} if table.synced.is_set() else None

    hooks = DeviceHooks(active, keeper.poke, table.on_probe, managers.affinity)
    return DeviceManager(CheckpointFiles(folder), DevicePluginEndpoint, clock, hooks)


def _claims(client: KubeClient, root_dir: str, node: str, clock: Clock, table: PodTable) -> DraManager:
    def known() -> set[str] | None:
        return {pod.uid for pod in table.pods()} if table.synced.is_set() else None

    return DraManager(
        DraManagerDeps(
            CheckpointFiles(root_dir), DraObjects(client, node), DraDriver, clock, known, table.retry_blocked
        )
    )


def _in_use(node: str, keeper: NodeKeeper, clock: Clock) -> Callable[[frozenset[str]], Awaitable[None]]:
    """Wait until the Node lists these volumes as in use."""

    async def in_use(names: frozenset[str]) -> None:
        keeper.poke()
        until = clock.monotonic() + _PATIENCE
        while not names <= set(((keeper.node or {}).get("status") or {}).get("volumesInUse") or ()):
            if clock.monotonic() >= until:
                raise Temporary("the Node does not list the volume as in use yet", obj=f"Node {node}", step="attach")
            await clock.sleep(_PAUSE)

    return in_use
