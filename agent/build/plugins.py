"""Joins the plugin manager with what its plugins serve: CSI volumes, devices, DRA claims, and podresources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agent.build.base import Base
from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.model.pods import Pod
from agent.common.work.observable import until
from agent.common.work.spaced import Spaced
from agent.devices.edge.device_plugin import DevicePluginEndpoint, DevicePluginServer
from agent.devices.edge.dra_driver import DraDriver
from agent.devices.edge.dra_metrics import DraMetrics
from agent.devices.edge.dra_objects import DraObjects
from agent.devices.edge.pod_resources import PodResourcesServer
from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.devices.plan.device_checkpoint import MOST_BYTES
from agent.devices.work.devices import DeviceHooks, DeviceManager
from agent.devices.work.dra import DraManager, DraManagerDeps
from agent.devices.work.pod_resources import PodResources
from agent.managers.work import ResourceManagers, TopologyAffinity
from agent.plugins.edge.registration import PluginSockets, RegistrationClient
from agent.plugins.model import CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN, NodeExtras
from agent.plugins.work import PluginHandler, PluginManager
from agent.pods.work.registry import PodRegistry
from agent.stats.edge.machine import filesystem
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.edge.csi_driver import CsiDriver
from agent.volumes.edge.selinux_metrics import SelinuxCounts
from agent.volumes.work.csi_contexts import CsiContexts
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_growth import CsiGrowth
from agent.volumes.work.csi_limits import CsiLimits
from agent.volumes.work.csi_objects import CsiObjects
from agent.volumes.work.csi_stats import CsiStats
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.tokens import TokenCache
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import Work

_IN_USE_TIMEOUT = 10.0  # seconds that a volume waits for the Node to list it


@dataclass(frozen=True, slots=True)
class BuiltPlugins:
    """Run `tasks()` until the end, then call close()."""

    sockets: PluginSockets
    manager: PluginManager
    objects: CsiObjects
    drivers: CsiDrivers
    csi: CsiVolumes
    csi_stats: CsiStats
    csi_growth: CsiGrowth
    expansion: Expansion
    csi_limits: CsiLimits
    device_server: DevicePluginServer
    devices: DeviceManager
    claims: DraManager
    pod_resources: PodResourcesServer
    retries: Spaced

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [
            ("plugins", self.manager.run),
            ("pods that wait for plugins", self.retries.run),
            ("csi volumes", self.csi.run),
            ("csi stats", self.csi_stats.run),
            ("csi limits", self.csi_limits.run),
            ("devices", self.devices.run),
            ("resource claims", self.claims.run),
            ("drivers of resource claims", self.claims.drivers.run),
            ("health of claimed devices", self.claims.run_health),
            ("device plugins", self._serve_device_plugins),
            ("pod resources", self.pod_resources.run),
            *self.objects.tasks(),
        ]

    def node_extras(self) -> NodeExtras:
        """What plugins add to the Node's status."""
        return replace(self.devices.extras(), volumes_in_use=tuple(sorted(self.csi.names_in_use())))

    async def _serve_device_plugins(self) -> None:
        await self.device_server.run(self.devices.connect)

    async def close(self) -> None:
        await self.drivers.close()
        await self.claims.drivers.close()
        self.sockets.close()


async def build_devices(base: Base, affinity: TopologyAffinity) -> DeviceManager:
    """The device manager, with the allocations of earlier agents. Raises Temporary."""
    metrics = base.metrics
    hooks = DeviceHooks(
        _if_synced(base.pods, base.pods.active),
        base.node_changed.fire,
        base.pods.wake,
        affinity.of,
        metrics.device_plugin_registered,
        metrics.devices_allocated,
    )
    folder = f"{base.settings.paths.root_dir}/device-plugins"
    devices = DeviceManager(CheckpointFiles(folder, MOST_BYTES), DevicePluginEndpoint, base.clock, hooks)
    await devices.load()
    return devices


async def build_plugins(base: Base, devices: DeviceManager, managers: ResourceManagers) -> BuiltPlugins:
    """Reads the records of volumes and claims from disk. Raises Temporary."""
    client, clock, pods = base.connections.named, base.clock, base.pods
    root_dir, node = base.settings.paths.root_dir, base.settings.node.name
    objects = CsiObjects(client, TokenCache(client, clock), node)
    objects.drivers_changed.follow(base.node_changed.fire)  # what they say decides on volumesInUse
    retries = Spaced(pods.retry_blocked, clock)  # all pods that wait try again, whichever plugin has come
    drivers = CsiDrivers(objects, CsiDriver, clock, retries.poke)
    limits = CsiLimits(drivers, objects, clock)
    contexts = CsiContexts(
        base.machine.facts().selinux,
        every_mode=base.settings.selinux_every_mode,
        counts=SelinuxCounts(base.metrics.registry),
    )
    expansion = Expansion(objects, base.events, clock)
    grower = CsiGrower(drivers, objects, expansion)
    csi_deps = CsiVolumesDeps(
        drivers, objects, CsiDisk(root_dir), clock, _in_use(base), pods.synced, limits.exceeded, grower, contexts
    )
    csi = CsiVolumes(root_dir, node, csi_deps)
    await csi.load()
    dra_metrics = DraMetrics(base.metrics.registry, lambda: claims.states)
    claims = DraManager(
        DraManagerDeps(
            CheckpointFiles(root_dir),
            DraObjects(client, node),
            lambda name, endpoint, service: DraDriver(name, endpoint, service, dra_metrics.call),
            clock,
            _if_synced(pods, pods.pods),
            retries.poke,
            pods.wake,
            base.settings.status.health_messages,
            dra_metrics.operation,
            has_api=not base.settings.standalone,
        )
    )
    await claims.load()
    sockets = PluginSockets(f"{root_dir}/plugins_registry")
    handlers: dict[str, PluginHandler] = {CSI_PLUGIN: drivers, DEVICE_PLUGIN: devices, DRA_PLUGIN: claims.drivers}
    answers = PodResources(pods, devices, claims, managers, pods.synced, clock)
    return BuiltPlugins(
        sockets=sockets,
        manager=PluginManager(sockets, RegistrationClient(), handlers, clock),
        objects=objects,
        drivers=drivers,
        csi=csi,
        csi_stats=CsiStats(csi, drivers, filesystem, clock, base.metrics.volume_measured),
        csi_growth=CsiGrowth(csi, drivers, grower),
        expansion=expansion,
        csi_limits=limits,
        device_server=DevicePluginServer(f"{root_dir}/device-plugins"),
        devices=devices,
        claims=claims,
        pod_resources=PodResourcesServer(
            f"{root_dir}/pod-resources/kubelet.sock",
            answers.methods(),
            PodResourcesMetrics(base.metrics.registry),
            monotonic=clock.monotonic,
        ),
        retries=retries,
    )


def _if_synced(registry: PodRegistry, pods: Callable[[], list[Pod]]) -> Callable[[], set[str] | None]:
    """UIDs of these pods; None until all pods of the node are known."""
    return lambda: {pod.uid for pod in pods()} if registry.synced.is_set() else None


def _in_use(base: Base) -> Callable[[frozenset[str]], Awaitable[None]]:
    """Wait until the Node lists these volumes as in use."""

    async def in_use(names: frozenset[str]) -> None:
        def named(node: Json | None) -> bool:
            return names <= set(((node or {}).get("status") or {}).get("volumesInUse") or ())

        base.node_changed.fire()
        try:
            async with asyncio.timeout(_IN_USE_TIMEOUT):
                await until(base.own_node, named)
        except TimeoutError:
            obj = f"Node {base.settings.node.name}"
            raise Temporary("the Node does not list the volume as in use yet", obj=obj, step="attach") from None

    return in_use
