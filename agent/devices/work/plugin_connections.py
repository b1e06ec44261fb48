"""The connections to device plugins. Several may serve one resource (upstream's endpointStore): an update that rolls
over a node starts the new one before it ends the old one, and the one that is left goes on with what was listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from agent.devices.model.devices import PluginOptions
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait

MOST = 8  # of a resource; the oldest gives way


class Endpoint(Protocol):
    """devices/edge/device_plugin.py DevicePluginEndpoint. Every call raises PluginError."""

    def watch(self) -> AsyncIterator[list[Json]]: ...

    async def options(self) -> PluginOptions: ...

    async def preferred(self, available: Iterable[str], must: Iterable[str], count: int) -> list[str]: ...

    async def allocate(self, ids: Iterable[str]) -> Json: ...

    async def pre_start(self, ids: Iterable[str]) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Connection:
    """`watch` reads its devices, until it is None: then the plugin has ended, and its calls fail."""

    endpoint: Endpoint
    options: PluginOptions
    watch: asyncio.Task[None] | None


class PluginConnections:
    """By resource, and in the order in which they came."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Connection]] = {}  # by resource, then by socket

    def newest(self, resource: str) -> Connection | None:
        """The one that is asked for devices."""
        return next(reversed(self._of.get(resource, {}).values()), None)

    @property
    def count(self) -> int:
        return sum(map(len, self._of.values()))

    def watched(self) -> set[str]:
        """Resources of plugins that have not ended."""
        return {name for name, all_of in self._of.items() if any(one.watch is not None for one in all_of.values())}

    async def add(
        self, resource: str, socket: str, endpoint: Endpoint, options: PluginOptions, watch: Coroutine[Any, Any, None]
    ) -> None:
        """In place of one at the same socket, and of those that have ended."""
        before = self._of.get(resource, {})
        others = [at for at, one in before.items() if one.watch is not None and at != socket]
        for at in set(before) - set(others[-(MOST - 1) :]):
            await self.drop(resource, at)
        task = asyncio.create_task(watch, name=f"devices of {resource}")
        self._of.setdefault(resource, {})[socket] = Connection(endpoint, options, task)

    async def ended(self, resource: str, socket: str, endpoint: Endpoint) -> None:
        """The plugin has ended, as the task that watches it says. It stays while no other one serves the resource."""
        all_of = self._of.get(resource, {})
        one = all_of.get(socket)
        if one is None or one.endpoint is not endpoint:
            return
        one.watch = None
        if resource in self.watched():
            del all_of[socket]
            await endpoint.close()

    async def drop(self, resource: str, socket: str) -> bool:
        """End the connection. Whether there was one."""
        one = self._of.get(resource, {}).pop(socket, None)
        if not self._of.get(resource):
            self._of.pop(resource, None)
        if one is None:
            return False
        if one.watch is not None:
            await cancel_and_wait(one.watch)
        await one.endpoint.close()
        return True

    async def close(self) -> None:
        for resource, all_of in list(self._of.items()):
            for socket in list(all_of):
                await self.drop(resource, socket)
