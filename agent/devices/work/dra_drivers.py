"""The DRA drivers that have registered, which of them can be reached, and the ResourceSlices of those that cannot.

A driver's service may end while its registrar stays, or never come: what counts is the connection, as with upstream
(pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go). ResourceSlices of a driver that nobody reaches are deleted, or the
scheduler would count on its devices; those of all drivers when the agent starts, as none has registered then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.devices.model.dra import ClaimRef
from agent.devices.plan import dra as plan
from agent.devices.plan import dra_health as health
from agent.devices.work.dra_health import DraHealth
from agent.plugins.model import PluginInfo
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.key_locks import KeyLocks
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at the connections
_WIPE = 30.0  # seconds after which the slices of a driver that is gone are deleted; upstream's defaultWipingDelay
_RETRY, _LONGEST = 1.0, 300.0  # seconds between tries to delete them
_ALL = ""


class Driver(Protocol):
    """devices/edge/dra_driver.py DraDriver. Every call raises PluginError."""

    endpoint: str

    def is_connected(self) -> bool:
        """Whether its service can be reached now; tries to reach it, if not."""
        ...

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]: ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]: ...

    def watch_health(self, service: str) -> AsyncIterator[list[Json]]: ...

    async def close(self) -> None: ...


class Slices(Protocol):
    """devices/edge/dra_objects.py. Every call raises ApiError."""

    async def delete_slices(self, driver: str) -> None:
        """All ResourceSlices of a driver for this node, "": of all drivers."""
        ...


@dataclass(slots=True)
class _Instance:
    """One process that serves a driver; `health`: its service for that, "" for none."""

    driver: Driver
    health: str
    connected: bool = False


Dial = Callable[[str, str, str], Driver]
"""Gets a driver's name, its socket and its service."""


class DraDrivers:
    """run() is long-lived. Also plugins/work.py PluginHandler for plugins of type DRAPlugin.

    `registered()` is called when a driver has registered. `slices` None: there is no API server.
    """

    def __init__(
        self, dial: Dial, slices: Slices | None, clock: Clock, registered: Callable[[], None], health: DraHealth
    ) -> None:
        self._dial, self._slices, self._clock, self._registered = dial, slices, clock, registered
        self._health = health
        self._instances: dict[str, list[_Instance]] = {}  # the newest last; two while a driver is updated
        self._locks = KeyLocks[str]()  # by name: of those who come and go together, each would listen to health
        self._wipes: dict[str, asyncio.Task[None]] = {}

    def get(self, name: str) -> Driver:
        """The newest instance of a driver that can be reached, otherwise the newest. Raises Temporary."""
        instances = self._instances.get(name)
        if not instances:
            raise Temporary(
                f"DRA driver {name} is not registered",
                obj=f"DRA driver {name}",
                action="Start the driver's kubelet plugin on this node (its DaemonSet); the agent tries again.",
            )
        return next((one for one in reversed(instances) if one.connected), instances[-1]).driver

    def validate(self, info: PluginInfo) -> None:
        plan.service_of(info)

    async def register(self, info: PluginInfo) -> None:
        async with self._locks.of(info.name):
            await self._drop(info)  # one that registers again is the newest
            driver = self._dial(info.name, info.endpoint, plan.service_of(info))
            self._instances.setdefault(info.name, []).append(_Instance(driver, health.service_of(info.versions)))
            await self._watch_newest(info.name)
            self._follow(info.name)
        self._registered()

    async def deregister(self, info: PluginInfo) -> None:
        async with self._locks.of(info.name):
            newest = self._instances.get(info.name, [None])[-1]
            if not await self._drop(info):
                return
            if info.name not in self._instances:
                await self._health.forget(info.name)
            elif self._instances[info.name][-1] is not newest:
                await self._watch_newest(info.name)
            self._follow(info.name)

    async def run(self) -> None:
        """Until cancelled: look at the connections, and delete the slices of drivers that nobody reaches."""
        self._wipe_later(_ALL, 0.0)
        try:
            while True:
                for name, instances in list(self._instances.items()):
                    if any(list(_changed(instances))):
                        self._follow(name)
                await self._clock.sleep(_LOOK)
        finally:
            await cancel_and_wait(*self._wipes.values())

    async def close(self) -> None:
        for instances in self._instances.values():
            for one in instances:
                await one.driver.close()

    async def _drop(self, info: PluginInfo) -> bool:
        """Whether the instance was there."""
        instances = self._instances.get(info.name, [])
        found = next((one for one in instances if one.driver.endpoint == info.endpoint), None)
        if found is None:
            return False
        instances.remove(found)
        if not instances:
            del self._instances[info.name]
        await found.driver.close()
        return True

    async def _watch_newest(self, name: str) -> None:
        newest = self._instances[name][-1]
        await self._health.watch(name, newest.driver, newest.health)

    def _follow(self, name: str) -> None:
        """Something of the driver has changed: its slices go, or may stay."""
        if not any(one.connected for one in self._instances.get(name, ())):
            self._wipe_later(name, _WIPE)
        elif (pending := self._wipes.pop(name, None)) is not None:
            pending.cancel()

    def _wipe_later(self, name: str, delay: float) -> None:
        """A wipe that waits already keeps its time."""
        if self._slices is not None and name not in self._wipes:
            task = asyncio.create_task(self._wipe(self._slices, name, delay), name=f"wipe slices of {name or 'all'}")
            self._wipes[name] = task
            task.add_done_callback(lambda ended: self._wipes.pop(name) if self._wipes.get(name) is ended else None)

    async def _wipe(self, slices: Slices, name: str, delay: float) -> None:
        backoff = Backoff(_RETRY, _LONGEST, jitter=0.2)
        if delay:
            await self._clock.sleep(delay)
        while not any(one.driver.is_connected() for one in self._instances.get(name, ())):  # none since the last look
            try:
                await slices.delete_slices(name)
            except NodewrightError as error:
                whose = f"of DRA driver {name}" if name else "of this node's DRA drivers"
                log.warning("the ResourceSlices %s could not be deleted: %s", whose, error)
                await self._clock.sleep(backoff.next())
            else:
                return


def _changed(instances: Sequence[_Instance]) -> Iterator[bool]:
    """Look at each connection: whether it is there, or not there, since this look."""
    for one in instances:
        before, one.connected = one.connected, one.driver.is_connected()
        yield before != one.connected
