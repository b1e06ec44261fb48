"""A device plugin in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from agent.common.model.errors import PluginUnavailable
from agent.devices.model.devices import PluginOptions
from nodelib.json_values import Json


class FakeEndpoint:
    """list_devices() sends a list, stop() ends the plugin. `prefers`: ids; `calls`: those that it received."""

    def __init__(self, resource: str, socket: str) -> None:
        self.resource, self.socket = resource, socket
        self.prefers: list[str] = []
        self.calls: list[tuple[str, list[str]]] = []
        self.refuses, self.is_closed = "", False
        self.wants = PluginOptions()
        self.has_no_options = ""
        self._lists: asyncio.Queue[list[Json] | None] = asyncio.Queue()

    def list_devices(self, *healthy: str, sick: Iterable[str] = ()) -> None:
        listed = [{"ID": one, "health": "Healthy"} for one in healthy]
        self._lists.put_nowait([*listed, *({"ID": one, "health": "Unhealthy"} for one in sick)])

    def stop(self) -> None:
        self._lists.put_nowait(None)

    async def watch(self) -> AsyncIterator[list[Json]]:
        while (listed := await self._lists.get()) is not None:
            yield listed
        raise PluginUnavailable("it has stopped", code="UNAVAILABLE")

    async def options(self) -> PluginOptions:
        if self.has_no_options:
            raise PluginUnavailable(self.has_no_options, code="UNKNOWN")
        return self.wants

    async def preferred(self, available: Iterable[str], must: Iterable[str], count: int) -> list[str]:
        self.calls.append(("preferred", sorted(available)))
        return self.prefers

    async def allocate(self, ids: Iterable[str]) -> Json:
        self.calls.append(("allocate", sorted(ids)))
        if self.refuses:
            raise PluginUnavailable(self.refuses, code="UNAVAILABLE")
        nodes = [{"container_path": f"/dev/{one}", "host_path": "/dev/null", "permissions": "rw"} for one in ids]
        return {
            "envs": {"DEVICES": ",".join(sorted(ids))},
            "mounts": [{"container_path": "/m", "host_path": "/host/m", "read_only": True}],
            "devices": nodes,
            "annotations": {"a": "b"},
            "cdi_devices": [{"name": f"{self.resource}={one}"} for one in ids],
        }

    async def pre_start(self, ids: Iterable[str]) -> None:
        self.calls.append(("pre_start", sorted(ids)))

    async def close(self) -> None:
        self.is_closed = True
