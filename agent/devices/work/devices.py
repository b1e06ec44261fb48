"""The device manager: which plugin offers which devices, and which container has them, across restarts of the agent.

A resource is allocated for one pod at a time, so a plugin that does not answer holds the pods that ask for its
resource only. The checkpoint is written before a container is created with the devices. They are freed lazily, as
upstream does it: when the next pod asks, those of pods that are no longer active.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.common.ports import CheckpointStore
from agent.devices.model.devices import (
    AllocationKey,
    DeviceAllocation,
    DeviceGrant,
    PodDevices,
    RegisteredPlugin,
)
from agent.devices.plan import device_checkpoint as checkpoint
from agent.devices.plan import devices as plan
from agent.devices.plan.topology import device_hints, with_affinity
from agent.devices.work.plugin_connections import Endpoint, PluginConnections
from agent.managers.plan.hints import Hints, Mask
from agent.plugins.model import NodeExtras, PluginInfo
from nodelib.clock import Clock, at_most
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.key_locks import KeyLocks
from nodelib.rate_limiter import RateLimiter, TokenBucket
from nodelib.threads import in_thread_if

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceHooks:
    """What the device manager asks and notifies.

    `active_pods()`: UIDs of the pods that keep their devices, None while not all pods are known; `changed()`: the
    node's devices have changed; `health_changed(uid)`: the health of a device of this pod has changed;
    `affinity(uid, container)`: the NUMA nodes that the topology manager chose, None: any. `counted(resource)`: a plugin
    asks to be registered; `answered(resource, seconds)`: one has answered Allocate, or failed to.
    """

    active_pods: Callable[[], Collection[str] | None]
    changed: Callable[[], None]
    health_changed: Callable[[str], None]
    affinity: Callable[[str, str], Mask | None]
    counted: Callable[[str], None] = lambda resource: None
    answered: Callable[[str, float], None] = lambda resource, seconds: None


class DeviceManager:
    """Call load() first; run() is long-lived. Also plugins/work.py PluginHandler for plugins under plugins_registry."""

    def __init__(
        self, files: CheckpointStore, dial: Callable[[str, str], Endpoint], clock: Clock, hooks: DeviceHooks
    ) -> None:
        self._files, self._dial, self._clock, self._hooks = files, dial, clock, hooks
        self._allocations: PodDevices = {}
        self._plugins: dict[str, RegisteredPlugin] = {}
        self._connections = PluginConnections()
        self._removed: set[str] = set()
        self._admitted: set[str] = set()
        self._resource_locks, self._pod_locks = KeyLocks[str](), KeyLocks[str]()
        self._saving, self._texts = asyncio.Lock(), checkpoint.Texts()
        self._registering, self._asked = asyncio.Lock(), 0
        self._stopped = asyncio.Event()

    # --- what others read

    @property
    def plugins(self) -> Mapping[str, RegisteredPlugin]:
        """By resource name."""
        return self._plugins

    @property
    def allocations(self) -> Mapping[AllocationKey, DeviceAllocation]:
        """Those of pods that have ended are among them until the next allocation."""
        return self._allocations

    def extras(self) -> NodeExtras:
        """Capacity and allocatable of the node."""
        return plan.node_extras(self._plugins, self._removed)

    def topology_hints(self, pod: Pod, container: Json | None, nodes: Collection[int]) -> Hints:
        """For one container; None: for the pod as a whole. `nodes`: the machine's NUMA nodes."""
        return device_hints(pod, container, self._allocations, self._plugins, nodes)

    def health(self, uid: str) -> Mapping[str, list[Json]]:
        """allocatedResourcesStatus by container name."""
        return plan.health_status(uid, self._allocations, self._plugins)

    # --- plugins

    async def load(self) -> None:
        """Read the checkpoint. Its resources have no healthy device until their plugins register again."""
        text = await self._files.read(checkpoint.CHECKPOINT)
        try:
            self._allocations, names = checkpoint.decode(text) if text is not None else ({}, [])
        except Invalid as error:
            kept = await self._files.set_aside(checkpoint.CHECKPOINT)
            log.warning("%s cannot be used (kept as %s): %s", checkpoint.CHECKPOINT, kept, error)
            return
        now = self._clock.monotonic()
        self._plugins = {name: RegisteredPlugin(stopped_at=now) for name in names}

    async def connect(self, version: str, resource: str, socket: str) -> None:
        """Register a plugin. Raises Invalid for its version or resource, Permanent when it does not say its options,
        Temporary when there are too many."""
        plan.check_registration(version, resource)
        plan.check_socket(socket, resource)
        plan.check_room(resource, self._plugins.keys() | self._removed, self._asked)
        self._hooks.counted(resource)  # not before: the names that plugins make up must not be without number
        endpoint = self._dial(resource, socket)
        self._asked += 1
        try:
            options = await endpoint.options()
            plan.check_room(resource, self._plugins.keys() | self._removed, 0)  # others have registered meanwhile
        except BaseException as error:
            await endpoint.close()
            if isinstance(error, PluginError):
                raise plan.no_options(error.message, resource) from error
            raise  # the plugin does not wait for the answer any more
        finally:
            self._asked -= 1
        async with self._registering:
            self._plugins[resource] = replace(self._plugins.get(resource, RegisteredPlugin()), options=options)
            watch = self._watch_plugin(resource, socket, endpoint)
            await self._connections.add(resource, socket, endpoint, options, watch)
        log.info("device plugin of %s registered at %s", resource, socket)

    def validate(self, info: PluginInfo) -> None:
        """Raises Invalid."""
        version = next((one for one in info.versions if one == "v1beta1"), ",".join(info.versions))
        plan.check_registration(version, info.name)

    async def register(self, info: PluginInfo) -> None:
        """Register a plugin that was found by its socket under plugins_registry."""
        await self.connect("v1beta1", info.name, info.endpoint)

    async def deregister(self, info: PluginInfo) -> None:
        """The socket of the plugin is gone."""
        if await self._connections.drop(info.name, info.endpoint):
            self._plugin_stopped(info.name)

    async def run(self) -> None:
        """Until cancelled: remove the resources of plugins that stay away for too long."""
        try:
            while True:
                self._stopped.clear()
                due = plan.next_expiry(self._plugins, self._connections.watched())
                if due is None:
                    await self._stopped.wait()
                elif (remaining := due - self._clock.monotonic()) > 0:
                    await at_most(self._clock, remaining, self._stopped)
                await self._remove_expired()
        finally:
            await self._connections.close()

    async def _remove_expired(self) -> None:
        expired = plan.expired(self._plugins, self._connections.watched(), self._clock.monotonic())
        for name in expired:
            log.info("%s is removed from the node: its device plugin has not come back", name)
            del self._plugins[name]
            self._removed.add(name)
        if expired:
            self._hooks.changed()
            await self._save()

    async def _watch_plugin(self, resource: str, socket: str, endpoint: Endpoint) -> None:
        bucket = TokenBucket(plan.CHANGES_A_SECOND, plan.BURST, self._clock.monotonic)
        turns = RateLimiter(bucket, self._clock.sleep)  # for one whose devices change as fast as it can tell
        owed = 0.0
        try:
            async for listed in endpoint.watch():
                if await self._devices_listed(resource, listed):
                    await turns.wait()
                pause, owed = plan.pause_after(listed, self._connections.count, owed)
                if pause:
                    await self._clock.sleep(pause)
            log.info("device plugin of %s has ended", resource)
        except PluginError as error:
            log.info("device plugin of %s has stopped: %s", resource, error)
        except Exception:
            log.exception("device plugin of %s: its devices cannot be read", resource)
        await self._connections.ended(resource, socket, endpoint)
        self._plugin_stopped(resource)

    async def _devices_listed(self, resource: str, listed: list[Json]) -> bool:
        """Whether something has changed."""
        before = self._plugins[resource]
        found = await in_thread_if(plan.is_large(len(listed)), plan.listed, before, listed)
        if found is not None:
            if len(listed) > plan.MOST_DEVICES:
                log.warning("%s: of %d devices the first %d are offered", resource, len(listed), plan.MOST_DEVICES)
            self._plugins[resource], changed = found
            self._removed.discard(resource)
            self._notify(resource, changed)
            try:
                await self._save()
            except Temporary as error:
                log.warning("%s", error)
        return found is not None

    def _plugin_stopped(self, resource: str) -> None:
        """Its devices are unhealthy, unless another plugin serves the resource: then that one is asked from now on."""
        plugin, other = self._plugins.get(resource), self._connections.newest(resource)
        if plugin is None:
            return
        if other is not None and other.watch is not None:
            self._plugins[resource] = replace(plugin, options=other.options)
        else:
            self._plugins[resource] = replace(plugin, connected=False, stopped_at=self._clock.monotonic())
            self._stopped.set()
            self._notify(resource, set())

    def _notify(self, resource: str, devices: Collection[str]) -> None:
        self._hooks.changed()
        for key, allocation in self._allocations.items():
            if key.resource == resource and not allocation.ids.isdisjoint(devices):
                self._hooks.health_changed(key.uid)

    # --- pods

    async def admit(self, pod: Pod, *, running: bool) -> None:
        """Allocate the devices of all containers. Raises Permanent when that fails: the pod cannot run here.

        `running`: a container of the pod is running already, so nothing is allocated anew.
        """
        if pod.uid in self._admitted or not plan.device_requests(pod, self._known()):
            return
        async with self._pod_locks.of(pod.uid):
            self._free_inactive()
            if not running and pod.uid not in self._admitted:
                await self._allocate(pod)
            self._admitted.add(pod.uid)

    async def grant(self, pod: Pod, container: Json) -> DeviceGrant:
        """What the container is created with for its devices, after PreStartContainer where the plugin wants it.

        Raises PluginError, and Temporary while the plugin is not connected.
        """
        mine = {key: one for key, one in plan.of_pod(pod.uid, self._allocations) if key.container == container["name"]}
        for key, allocation in mine.items():
            plugin, known = self._plugins.get(key.resource), self._connections.newest(key.resource)
            if plugin is not None and plugin.options.pre_start:
                if known is None:
                    raise Temporary(f"the device plugin of {key.resource} is not there", step="PreStartContainer")
                await known.endpoint.pre_start(allocation.ids)
        return plan.merged(allocation.grant for allocation in mine.values())

    def _known(self) -> set[str]:
        return {*self._plugins, *(key.resource for key in self._allocations)}

    def _free_inactive(self) -> None:
        active = self._hooks.active_pods()
        if active is not None:
            self._allocations = {key: found for key, found in self._allocations.items() if key.uid in active}
            self._admitted &= set(active)

    async def _allocate(self, pod: Pod) -> None:
        fresh: set[AllocationKey] = set()
        try:
            for request in plan.device_requests(pod, self._known()):
                async with self._resource_locks.of(request.key.resource):
                    found = await self._allocate_one(pod, request)
                    if found is not None:
                        self._allocations[request.key] = found
                        fresh.add(request.key)
        except BaseException:
            # All or nothing: another pod may have the devices.
            self._allocations = {key: found for key, found in self._allocations.items() if key not in fresh}
            raise
        if fresh:
            await self._save()

    async def _allocate_one(self, pod: Pod, request: plan.DeviceRequest) -> DeviceAllocation | None:
        """None: the container has its devices, or needs none."""
        plugin = self._plugins.get(request.key.resource)
        reusable = plan.reusable_devices(pod, request, self._allocations)
        candidates = plan.candidates_for(request, self._allocations, plugin, reusable)
        if candidates is None or plugin is None:
            return None
        near = with_affinity(candidates, plugin, self._hooks.affinity(pod.uid, request.key.container))
        return await self._allocate_from(request, near, plugin)

    async def _allocate_from(
        self, request: plan.DeviceRequest, candidates: plan.Candidates, plugin: RegisteredPlugin
    ) -> DeviceAllocation:
        resource, required = request.key.resource, candidates.required
        known = self._connections.newest(resource)
        try:
            if known is None:
                raise Permanent(f"unknown Device Plugin {resource}")
            preferred: list[str] = []
            if plugin.options.preferred_allocation and candidates.needed:
                preferred = await known.endpoint.preferred(candidates.available | required, required, request.count)
            ids = plan.selected(candidates, preferred)
            response = await self._timed(resource, known.endpoint.allocate(ids))
            if not response:
                raise Permanent("no containers return in allocation response")
        except NodewrightError as error:
            raise Permanent(
                f"Allocate failed due to {error.message}, which is unexpected",
                obj=f"container {request.key.container}",
                step=f"devices {resource}",
                action="See the log of the device plugin.",
            ) from error
        return plan.allocation_from(ids, plugin.devices, response)

    async def _timed(self, resource: str, call: Awaitable[Json]) -> Json:
        began = self._clock.monotonic()
        try:
            return await call
        finally:
            self._hooks.answered(resource, self._clock.monotonic() - began)

    async def _save(self) -> None:
        async with self._saving:  # an older text must not be written last
            allocations, plugins = dict(self._allocations), dict(self._plugins)
            large = plan.is_large(sum(len(one.healthy) for one in plugins.values()))
            text = await in_thread_if(large, checkpoint.encode, allocations, plugins, self._texts)
            await self._files.write(checkpoint.CHECKPOINT, text)
