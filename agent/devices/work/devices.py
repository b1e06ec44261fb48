"""Devices of plugins: who offers what, which container has which, and that it stays so over restarts.

Allocations are made one pod at a time and are on disk before a container is made with them. They are freed when the
pod holds nothing any more (upstream frees them just as lazily).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.common.ports import CheckpointStore
from agent.devices.model.devices import DeviceGrant, Holder, Holding, Holdings, Json, Offer, PluginOptions
from agent.devices.plan import devices as plan
from agent.devices.plan.topology import device_hints, narrowed
from agent.managers.plan.hints import Hints, Mask
from agent.plugins.model import NodeExtras, PluginInfo
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary

log = logging.getLogger(__name__)

_SWEEP = 10.0  # seconds between looks for plugins that are gone for good


class Endpoint(Protocol):
    """devices/edge/device_plugin.py DevicePluginEndpoint. Every call raises PluginError."""

    def watch(self) -> AsyncIterator[list[Json]]: ...

    async def options(self) -> PluginOptions: ...

    async def preferred(self, available: Iterable[str], must: Iterable[str], count: int) -> list[str]: ...

    async def allocate(self, ids: Iterable[str]) -> Json: ...

    async def pre_start(self, ids: Iterable[str]) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceHooks:
    """`holding()`: UIDs of the pods that still hold what they asked for, None while not all pods are known;
    `changed()`: the node has other devices now; `poke(uid)`: the health of a device of this pod has changed;
    `affinity(uid, container)`: the NUMA nodes that were chosen for it, None: any."""

    holding: Callable[[], Collection[str] | None]
    changed: Callable[[], None]
    poke: Callable[[str], None]
    affinity: Callable[[str, str], Mask | None]


class DeviceManager:
    """load() first; run() is long-lived. register() is what plugins call, also as plugins/work.py PluginHandler."""

    def __init__(
        self, files: CheckpointStore, dial: Callable[[str, str], Endpoint], clock: Clock, hooks: DeviceHooks
    ) -> None:
        self._files, self._dial, self._clock, self._hooks = files, dial, clock, hooks
        self._held: Holdings = {}
        self._offers: dict[str, Offer] = {}
        self._endpoints: dict[str, tuple[str, Endpoint]] = {}
        self._follows: dict[str, asyncio.Task[None]] = {}
        self._removed: set[str] = set()
        self._admitted: set[str] = set()
        self._lock = asyncio.Lock()
        self._registering = asyncio.Lock()

    # --- what the node and others are told

    @property
    def offers(self) -> Mapping[str, Offer]:
        return self._offers

    @property
    def held(self) -> Mapping[Holder, Holding]:
        """Who has what. Holders that have gone are among them until the next allocation."""
        return self._held

    def extras(self) -> NodeExtras:
        return plan.node_extras(self._offers, self._removed)

    def topology_hints(self, pod: Pod, container: Json | None) -> Hints:
        """Where the devices of a container could be, of the whole pod when it is None."""
        return device_hints(pod, container, self._held, self._offers)

    def health(self, uid: str) -> Mapping[str, list[Json]]:
        """allocatedResourcesStatus by container name."""
        return plan.health_status(uid, self._held, self._offers)

    # --- plugins

    async def load(self) -> None:
        """What was saved last; resources are offered again once their plugins are back."""
        text = await self._files.read(plan.CHECKPOINT)
        try:
            self._held, names = plan.decode(text) if text is not None else ({}, [])
        except Invalid as error:
            kept = await self._files.set_aside(plan.CHECKPOINT)
            log.warning("%s is not used (kept as %s): %s", plan.CHECKPOINT, kept, error)
            return
        now = self._clock.monotonic()
        self._offers = {name: Offer(left_at=now) for name in names}

    async def offer(self, version: str, resource: str, socket: str) -> None:
        """A plugin registers. Raises Invalid, and Permanent when it does not say its options: it is not used then."""
        plan.check_registration(version, resource)
        endpoint = self._dial(resource, socket)
        try:
            options = await endpoint.options()
        except PluginError as error:
            await endpoint.close()
            raise plan.no_options(error.message, resource) from error
        async with self._registering:
            await self._drop(resource)
            self._endpoints[resource] = socket, endpoint
            self._offers[resource] = replace(self._offers.get(resource, Offer()), options=options)
            work = self._follow(resource, endpoint)
            self._follows[resource] = asyncio.create_task(work, name=f"devices of {resource}")
        log.info("device plugin of %s at %s", resource, socket)

    def validate(self, info: PluginInfo) -> None:
        version = next((one for one in info.versions if one == "v1beta1"), ",".join(info.versions))
        plan.check_registration(version, info.name)

    async def register(self, info: PluginInfo) -> None:
        """A plugin that was found by its socket under plugins_registry."""
        await self.offer("v1beta1", info.name, info.endpoint)

    async def deregister(self, info: PluginInfo) -> None:
        known = self._endpoints.get(info.name)
        if known is not None and known[0] == info.endpoint:
            await self._drop(info.name)
            self._left(info.name)

    async def run(self) -> None:
        """Until cancelled: forget plugins that do not come back."""
        try:
            while True:
                await self._clock.sleep(_SWEEP)
                expired = plan.expired(self._offers, self._clock.monotonic())
                gone = [name for name in expired if name not in self._follows]
                for name in gone:
                    log.info("%s is no longer offered: its plugin has not come back", name)
                    del self._offers[name]
                    self._removed.add(name)
                if gone:
                    self._hooks.changed()
                    await self._save()
        finally:
            for name in list(self._follows):
                await self._drop(name)

    async def _follow(self, resource: str, endpoint: Endpoint) -> None:
        try:
            async for listed in endpoint.watch():
                await self._listed(resource, listed)
            log.info("device plugin of %s has ended", resource)
        except PluginError as error:
            log.info("device plugin of %s has left: %s", resource, error)
        self._follows.pop(resource, None)
        self._left(resource)

    async def _listed(self, resource: str, listed: list[Json]) -> None:
        fresh, before = plan.devices_of(listed), self._offers[resource]
        self._offers[resource] = replace(before, devices=fresh, connected=True)
        self._removed.discard(resource)
        changed = {one for one in fresh if before.devices.get(one) != fresh[one]}
        self._told(resource, changed)
        try:
            await self._save()
        except Temporary as error:
            log.warning("%s", error)

    def _left(self, resource: str) -> None:
        offer = self._offers.get(resource)
        if offer is not None:
            self._offers[resource] = replace(offer, connected=False, left_at=self._clock.monotonic())
            self._told(resource, set())

    def _told(self, resource: str, devices: Collection[str]) -> None:
        self._hooks.changed()
        for holder, has in self._held.items():
            if holder.resource == resource and not has.ids.isdisjoint(devices):
                self._hooks.poke(holder.uid)

    async def _drop(self, resource: str) -> None:
        task = self._follows.pop(resource, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        known = self._endpoints.pop(resource, None)
        if known is not None:
            await known[1].close()

    # --- pods

    async def admit(self, pod: Pod, *, running: bool) -> None:
        """Give each container its devices. Raises Permanent when they cannot be had: the pod cannot run here.

        `running`: a container of the pod runs already; it has what it has.
        """
        if pod.uid in self._admitted or not plan.wishes(pod, self._known()):
            return
        async with self._lock:
            await self._free_unheld()
            if not running:
                await self._allocate(pod)
            self._admitted.add(pod.uid)

    async def grant(self, pod: Pod, container: Json) -> DeviceGrant:
        """What a container that is about to be made gets for its devices; plugins that want to are told before.

        Raises PluginError.
        """
        mine = {
            holder: has
            for holder, has in sorted(self._held.items())
            if holder.uid == pod.uid and holder.container == container["name"]
        }
        for holder, has in mine.items():
            offer, known = self._offers.get(holder.resource), self._endpoints.get(holder.resource)
            if offer is not None and offer.options.pre_start:
                if known is None:
                    raise Temporary(f"the device plugin of {holder.resource} is not there", step="PreStartContainer")
                await known[1].pre_start(has.ids)
        return plan.merged(has.grant for has in mine.values())

    def _known(self) -> set[str]:
        return {*self._offers, *(holder.resource for holder in self._held)}

    async def _free_unheld(self) -> None:
        keep = self._hooks.holding()
        if keep is not None:
            self._held = {holder: has for holder, has in self._held.items() if holder.uid in keep}
            self._admitted &= set(keep)

    async def _allocate(self, pod: Pod) -> None:
        fresh: Holdings = {}
        for wish in plan.wishes(pod, self._known()):
            held = {**self._held, **fresh}
            offer = self._offers.get(wish.holder.resource)
            choice = plan.choose(wish, held, offer, plan.reusable_of(pod, wish, held))
            if choice is not None and offer is not None:
                near = narrowed(choice, offer, self._hooks.affinity(pod.uid, wish.holder.container))
                fresh[wish.holder] = await self._take(wish, near, offer)
        if fresh:
            self._held |= fresh
            await self._save()

    async def _take(self, wish: plan.Wish, choice: plan.Choice, offer: Offer) -> Holding:
        known = self._endpoints.get(wish.holder.resource)
        try:
            if known is None:
                raise Permanent(f"unknown Device Plugin {wish.holder.resource}")
            preferred: list[str] = []
            if offer.options.preferred_allocation and choice.missing:
                preferred = await known[1].preferred(choice.open | choice.sure, choice.sure, wish.count)
            ids = plan.settled(choice, preferred)
            response = await known[1].allocate(ids)
            if not response:
                raise Permanent("no containers return in allocation response")
        except NodewrightError as error:
            raise Permanent(
                f"Allocate failed due to {error.message}, which is unexpected",
                obj=f"container {wish.holder.container}",
                step=f"devices {wish.holder.resource}",
                action="See the log of the device plugin.",
            ) from error
        return plan.holding(ids, offer.devices, response)

    async def _save(self) -> None:
        await self._files.write(plan.CHECKPOINT, plan.encode(self._held, self._offers))
