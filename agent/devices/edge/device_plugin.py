"""Device plugins (v1beta1): the registration service that they call, and the service that they serve."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from agent.devices.model.devices import PluginOptions
from agent.plugins.edge.apis import DEVICE_PLUGIN
from agent.plugins.edge.rpc import PluginClient
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.plugin_apis.server import serve

_MOST = 1024 * 1024  # bytes of an answer about one container, which are recorded
_MOST_LISTED = 4 * 1024 * 1024  # bytes of a list of devices: nobody else runs while it is parsed
_LIMIT, _PRE_START_LIMIT = 60.0, 30.0  # seconds; upstream gives Allocate no limit at all

Register = Callable[[str, str, str], Awaitable[None]]


class DevicePluginEndpoint:
    """The connection to one plugin. Every call raises PluginError. End it with close()."""

    def __init__(self, resource: str, socket: str) -> None:
        self._client = PluginClient(DEVICE_PLUGIN, f"device plugin of {resource}", socket, most=_MOST_LISTED)

    async def watch(self) -> AsyncIterator[list[Json]]:
        """All devices, and again whenever one of them changes; ends when the plugin ends."""
        async for answer in self._client.stream("DevicePlugin.ListAndWatch", {}):
            yield answer["devices"]

    async def options(self) -> PluginOptions:
        answer = await self._client.call("DevicePlugin.GetDevicePluginOptions", {}, timeout=_LIMIT, most=_MOST)
        return options_of(answer)

    async def preferred(self, available: Iterable[str], must: Iterable[str], count: int) -> list[str]:
        asked = {
            "available_deviceIDs": sorted(available),
            "must_include_deviceIDs": sorted(must),
            "allocation_size": count,
        }
        request = {"container_requests": [asked]}
        answer = await self._client.call("DevicePlugin.GetPreferredAllocation", request, timeout=_LIMIT, most=_MOST)
        return list(answer["container_responses"][0]["deviceIDs"]) if answer["container_responses"] else []

    async def allocate(self, ids: Iterable[str]) -> Json:
        """ContainerAllocateResponse; {} when the plugin gives none."""
        request = {"container_requests": [{"devices_ids": sorted(ids)}]}
        answer = await self._client.call("DevicePlugin.Allocate", request, timeout=_LIMIT, most=_MOST)
        return dict(answer["container_responses"][0]) if answer["container_responses"] else {}

    async def pre_start(self, ids: Iterable[str]) -> None:
        request = {"devices_ids": sorted(ids)}
        await self._client.call("DevicePlugin.PreStartContainer", request, timeout=_PRE_START_LIMIT, most=_MOST)

    async def close(self) -> None:
        await self._client.close()


class DevicePluginServer:
    """kubelet.sock in `folder`, where plugins register.

    Sockets of plugins that registered with an earlier agent are removed: that is how they notice that they have to
    register again.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def run(self, register: Register) -> None:
        """Until cancelled. Raises Temporary when the socket cannot be created."""

        async def registered(request: Json) -> Json:
            # As upstream: options in the request are ignored, the plugin is asked for them.
            await register(request["version"], request["resource_name"], f"{self._folder}/{request['endpoint']}")
            return {}

        try:
            await asyncio.to_thread(self._clear)
        except OSError as error:
            raise Temporary(str(error), obj=self._folder, step="remove old sockets") from error
        server = await serve(
            f"{self._folder}/kubelet.sock", [DEVICE_PLUGIN.handler("Registration", {"Register": registered})]
        )
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(None)

    def _clear(self) -> None:
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    os.unlink(entry.path)


def options_of(options: Json) -> PluginOptions:
    """DevicePluginOptions."""
    return PluginOptions(
        bool(options.get("pre_start_required")), bool(options.get("get_preferred_allocation_available"))
    )
