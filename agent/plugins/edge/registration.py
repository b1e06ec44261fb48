"""The sockets under plugins_registry, and the registration service of their plugins."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass

from agent.common.edge.inotify import Inotify, Watch
from agent.plugins.edge.rpc import PluginClient
from agent.plugins.model import PluginInfo, SocketFile
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.plugin_apis.registration import REGISTRATION

_INFO_LIMIT, _NOTIFY_LIMIT = 5.0, 5.0  # seconds
_DEPTH = 4
_WALKS = 5  # at a time: somebody may make folders without end, and each of them is another event
_MOST = 64 * 1024  # bytes of an answer; a PluginInfo has a few hundred

Inode = tuple[int, int]
"""Device and inode number."""


@dataclass(frozen=True, slots=True)
class _Watched:
    inode: Inode
    watch: Watch


class PluginSockets:
    """The sockets in `folder` and below. Create it inside the running loop; end it with close()."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._inotify = Inotify("plugins")
        self._watched: dict[str, _Watched] = {}

    def close(self) -> None:
        self._inotify.close()

    async def scan(self) -> frozenset[SocketFile]:
        """All sockets that exist now, except those whose name starts with a dot. Raises Temporary."""
        sockets = list[SocketFile]()
        for _ in range(_WALKS):
            try:
                folders, sockets = await asyncio.to_thread(self._walk)
            except OSError as error:
                raise Temporary(str(error), obj=self._folder, step="look for plugins") from error
            # A socket that was created after the walk and before the watch has caused no event: walk again.
            if not self._watch_all(folders):
                break
        return frozenset(sockets)

    async def changed(self) -> None:
        """Until something changes in one of the folders of the last scan."""
        waits = [asyncio.ensure_future(one.watch.changed()) for one in self._watched.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _watch_all(self, folders: dict[str, Inode]) -> bool:
        """Watch exactly these folders; whether there is a new watch. Raises Temporary when the root has none."""
        for path, known in list(self._watched.items()):
            if known.watch.ended or folders.get(path) != known.inode:
                known.watch.__exit__(None, None, None)
                del self._watched[path]
        added = False
        for path, inode in folders.items():
            if path in self._watched:
                continue
            try:
                self._watched[path] = _Watched(inode, self._inotify.watch(path))
            except NodewrightError:
                # A folder that cannot be watched is still found by the scans that nothing has asked for.
                if path == self._folder:
                    raise
            else:
                added = True
        return added

    def _walk(self) -> tuple[dict[str, Inode], list[SocketFile]]:
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        folders: dict[str, Inode] = {self._folder: _inode(os.stat(self._folder))}
        pending, sockets = [self._folder], list[SocketFile]()
        for folder in pending:
            for path in _sockets_and_folders(folder):
                try:
                    found = os.lstat(path)
                except OSError:  # gone, or the root of a file system that is
                    continue
                if stat.S_ISSOCK(found.st_mode):
                    sockets.append(SocketFile(path, found.st_ino, found.st_mtime_ns))
                elif stat.S_ISDIR(found.st_mode) and path.count("/") - self._folder.count("/") < _DEPTH:
                    folders[path] = _inode(found)
                    pending.append(path)
        return folders, sockets


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino


def _sockets_and_folders(folder: str) -> list[str]:
    """By name. Files, links and pipes are passed over by their type in the folder, however many there are."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                f"{folder}/{one.name}"
                for one in entries
                if not one.name.startswith(".")
                and (one.is_dir(follow_symlinks=False) or not (one.is_file(follow_symlinks=False) or one.is_symlink()))
            )
    except OSError:  # removed since its parent was listed, or its file system has gone
        return []


class RegistrationClient:
    """Calls the registration service of a plugin, over a new connection each time."""

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
        """Notify the plugin that it is registered, or of the `error`. Raises PluginError."""
        fields = {"plugin_registered": not error, "error": error}
        await self._call(socket, "Registration.NotifyRegistrationStatus", fields, _NOTIFY_LIMIT)

    async def _call(self, socket: SocketFile, method: str, fields: Json, limit: float) -> Json:
        client = PluginClient(REGISTRATION, f"plugin at {socket.path}", socket.path, most=_MOST)
        try:
            return await client.call(method, fields, timeout=limit)
        finally:
            await client.close()
