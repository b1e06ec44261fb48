"""The sockets under plugins_registry, and what their plugins are asked and told."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import ExitStack

from agent.common.edge.inotify import Inotify, Watch
from agent.plugins.edge.apis import REGISTRATION
from agent.plugins.edge.rpc import PluginClient
from agent.plugins.edge.wire import Json
from agent.plugins.model import PluginInfo, SocketFile
from nodelib.errors import NodewrightError, Temporary

_INFO_LIMIT, _NOTIFY_LIMIT = 5.0, 5.0  # seconds
_DEPTH = 4


class PluginSockets:
    """`folder` and what is below it. Make it inside the running loop; end it with close()."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._inotify = Inotify()
        self._watches: dict[str, Watch] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()
        self._inotify.close()

    async def scan(self) -> frozenset[SocketFile]:
        """Every socket there is now; names with a dot in front are left out. Raises Temporary."""
        try:
            folders, sockets = await asyncio.to_thread(self._walk)
        except OSError as error:
            raise Temporary(str(error), obj=self._folder, step="look for plugins") from error
        fresh = [folder for folder in folders if folder not in self._watches]
        for folder in fresh:
            try:
                self._watches[folder] = self._stack.enter_context(self._inotify.watch(folder))
            except NodewrightError:
                if folder == self._folder:
                    raise
        for folder in [folder for folder in self._watches if folder not in folders]:
            del self._watches[folder]
        # What came between the look and the watch has told nobody.
        return await self.scan() if fresh else frozenset(sockets)

    async def wait(self, timeout: float) -> None:
        """Until something changes below the folder, at most `timeout` seconds."""
        waits = [asyncio.ensure_future(watch.wait(timeout)) for watch in self._watches.values()]
        if not waits:
            await asyncio.sleep(min(timeout, 1.0))
            return
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _walk(self) -> tuple[list[str], list[SocketFile]]:
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        folders, sockets = [self._folder], []
        for folder in folders:
            for name in sorted(os.listdir(folder)):
                path = f"{folder}/{name}"
                if name.startswith("."):
                    continue
                try:
                    found = os.lstat(path)
                except FileNotFoundError:
                    continue
                if stat.S_ISSOCK(found.st_mode):
                    sockets.append(SocketFile(path, found.st_ino, found.st_mtime_ns))
                elif stat.S_ISDIR(found.st_mode) and path.count("/") - self._folder.count("/") < _DEPTH:
                    folders.append(path)
        return folders, sockets


class Registrars:
    """The registration service of a plugin, called afresh each time."""

    async def info(self, socket: SocketFile) -> PluginInfo:
        """Raises PluginError."""
        answer = await self._call(socket, "Registration.GetInfo", {}, _INFO_LIMIT)
        return PluginInfo(
            type=answer["type"],
            name=answer["name"],
            endpoint=answer["endpoint"] or socket.path,
            versions=tuple(answer["supported_versions"]),
        )

    async def notify(self, socket: SocketFile, error: str) -> None:
        """Tell the plugin that it is registered, or why not. Raises PluginError."""
        fields = {"plugin_registered": not error, "error": error}
        await self._call(socket, "Registration.NotifyRegistrationStatus", fields, _NOTIFY_LIMIT)

    async def _call(self, socket: SocketFile, method: str, fields: Json, limit: float) -> Json:
        client = PluginClient(REGISTRATION, f"plugin at {socket.path}", socket.path)
        try:
            return await client.call(method, fields, timeout=limit)
        finally:
            await client.close()
