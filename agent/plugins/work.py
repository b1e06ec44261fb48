"""Plugins of this node: found by their sockets, registered with whoever serves their type, and let go when they leave.

Each registration is a task of its own: a plugin that hangs keeps nobody waiting. Nothing is remembered over a
restart: the sockets are there, and each plugin is registered afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from agent.plugins.model import PluginInfo, PluginsView, Refused, Registered, SocketFile
from agent.plugins.plan import plan_plugins, refused
from nodelib.clock import Clock
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_AUDIT = 30.0  # seconds between looks that nothing asked for


class PluginHandler(Protocol):
    """Who serves one type of plugin."""

    def validate(self, info: PluginInfo) -> None:
        """Raises NodewrightError for a plugin that cannot be had."""
        ...

    async def register(self, info: PluginInfo) -> None:
        """Raises NodewrightError; the plugin is told, and it is tried again."""
        ...

    async def deregister(self, info: PluginInfo) -> None: ...


class Sockets(Protocol):
    """plugins/edge/registration.py PluginSockets."""

    async def scan(self) -> frozenset[SocketFile]: ...

    async def wait(self, timeout: float) -> None: ...


class Plugin(Protocol):
    """plugins/edge/registration.py Registrars."""

    async def info(self, socket: SocketFile) -> PluginInfo: ...

    async def notify(self, socket: SocketFile, error: str) -> None: ...


class PluginManager:
    """`handlers` by plugin type. run() is long-lived."""

    def __init__(self, sockets: Sockets, plugins: Plugin, handlers: Mapping[str, PluginHandler], clock: Clock) -> None:
        self._sockets, self._plugins, self._handlers, self._clock = sockets, plugins, handlers, clock
        self._registered: dict[str, Registered] = {}
        self._refused: dict[str, Refused] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._wait(self._walk(await self._sockets.scan()))
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _walk(self, found: frozenset[SocketFile]) -> float:
        """Begin what the plan says; seconds until the next look."""
        now = self._clock.monotonic()
        paths = {one.path for one in found}
        self._refused = {path: failed for path, failed in self._refused.items() if path in paths}
        view = PluginsView(found, dict(self._registered), dict(self._refused), frozenset(self._tasks))
        plan = plan_plugins(view, now)
        for known in plan.deregister:
            self._begin(known.socket.path, self._deregister(known))
        for socket in plan.register:
            self._begin(socket.path, self._register(socket))
        return _AUDIT if plan.wait_until is None else min(_AUDIT, plan.wait_until - now)

    def _begin(self, path: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[path] = asyncio.create_task(self._guard(path, work), name=f"plugin {path}")

    async def _guard(self, path: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("plugin at %s", path)
        finally:
            self._tasks.pop(path, None)
            self._changed.set()

    async def _register(self, socket: SocketFile) -> None:
        try:
            info = await self._plugins.info(socket)
            await self._take(socket, info)
        except NodewrightError as error:
            before = self._refused.get(socket.path)
            failed = self._refused[socket.path] = refused(socket, before, self._clock.monotonic())
            if failed.times in (1, 5):
                log.warning("plugin at %s is not registered: %s", socket.path, error)
            return
        self._refused.pop(socket.path, None)
        self._registered[socket.path] = Registered(socket, info)
        log.info("%s %s at %s is registered", info.type, info.name, info.endpoint)

    async def _take(self, socket: SocketFile, info: PluginInfo) -> None:
        handler = self._handlers.get(info.type)
        try:
            if handler is None:
                raise NodewrightError(f"no handler registered for plugin type: {info.type} at socket {socket.path}")
            handler.validate(info)
            await handler.register(info)
        except NodewrightError as error:
            await self._plugins.notify(socket, f"plugin registration failed with err: {error}")
            raise
        try:
            await self._plugins.notify(socket, "")
        except NodewrightError:
            await handler.deregister(info)
            raise

    async def _deregister(self, known: Registered) -> None:
        del self._registered[known.socket.path]
        log.info("%s %s at %s has left", known.info.type, known.info.name, known.info.endpoint)
        await self._handlers[known.info.type].deregister(known.info)

    async def _wait(self, timeout: float) -> None:
        waits = {
            asyncio.ensure_future(self._sockets.wait(timeout)),
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._clock.sleep(timeout)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
