"""The plugin manager: plugins are found by their sockets and registered with the handler of their type.

Changes of the folder wake it (inotify); an audit every half minute covers folders that cannot be watched. Each
registration is a task of its own, so that a plugin that hangs does not delay others. Nothing is kept across a restart:
the sockets are still there, and each plugin is registered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from agent.plugins.model import FailedRegistration, PluginInfo, PluginsView, Registered, SocketFile
from agent.plugins.plan import check_info, failed_again, plan_plugins
from nodelib.clock import Clock, rest_after
from nodelib.errors import NodewrightError
from nodelib.tasks import cancel_and_wait
from nodelib.text import one_line

log = logging.getLogger(__name__)

_AUDIT = 30.0  # seconds between scans without an event
_REST, _LONGEST_REST = 4, 1.0  # times as long as a scan took until the next one, seconds at most


class PluginHandler(Protocol):
    """Serves plugins of one type."""

    def validate(self, info: PluginInfo) -> None:
        """Raises NodewrightError for a plugin that is not supported."""
        ...

    async def register(self, info: PluginInfo) -> None:
        """Raises NodewrightError; the plugin is notified, and the registration is tried again."""
        ...

    async def deregister(self, info: PluginInfo) -> None: ...


class Sockets(Protocol):
    """plugins/edge/registration.py PluginSockets. Raises Temporary."""

    async def scan(self) -> frozenset[SocketFile]: ...

    async def changed(self) -> None: ...


class Registration(Protocol):
    """plugins/edge/registration.py RegistrationClient. Every call raises PluginError."""

    async def info(self, socket: SocketFile) -> PluginInfo: ...

    async def notify(self, socket: SocketFile, error: str) -> None: ...


class PluginManager:
    """`handlers` by plugin type. run() is long-lived."""

    def __init__(
        self, sockets: Sockets, registration: Registration, handlers: Mapping[str, PluginHandler], clock: Clock
    ) -> None:
        self._sockets, self._registration, self._handlers, self._clock = sockets, registration, handlers, clock
        self._registered: dict[str, Registered] = {}
        self._failed: dict[str, FailedRegistration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._registering: dict[str, float] = {}  # by path: when it began
        self._task_done = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._task_done.clear()
                began = self._clock.monotonic()
                wait = self._start_tasks(await self._sockets.scan())
                await rest_after(self._clock, began, _REST, _LONGEST_REST)
                await self._wait(wait)
        finally:
            await cancel_and_wait(*self._tasks.values())

    def _start_tasks(self, found: frozenset[SocketFile]) -> float:
        """Start the tasks that the plan asks for. Returns the seconds until the next scan."""
        now = self._clock.monotonic()
        paths = {one.path for one in found}
        self._failed = {path: failed for path, failed in self._failed.items() if path in paths}
        taken = tuple(now - began for began in self._registering.values())
        view = PluginsView(found, dict(self._registered), dict(self._failed), frozenset(self._tasks), taken)
        plan = plan_plugins(view, now)
        for known in plan.deregister:
            self._start(known.socket.path, self._deregister(known))
        for socket in plan.register:
            self._registering[socket.path] = now
            self._start(socket.path, self._register(socket))
        return _AUDIT if plan.wait_until is None else min(_AUDIT, plan.wait_until - now)

    def _start(self, path: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[path] = asyncio.create_task(self._guard(path, work), name=f"plugin {path}")

    async def _guard(self, path: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("plugin at %s", path)
        finally:
            self._tasks.pop(path, None)
            self._registering.pop(path, None)
            self._task_done.set()

    async def _register(self, socket: SocketFile) -> None:
        try:
            info = await self._registration.info(socket)
            await self._validate_and_register(socket, info)
        except Exception as error:
            before = self._failed.get(socket.path)
            failed = self._failed[socket.path] = failed_again(socket, before, self._clock.monotonic())
            if not isinstance(error, NodewrightError):
                log.exception("plugin at %s is not registered", socket.path)
            elif failed.times in (1, 5):
                log.warning("plugin at %s is not registered: %s", socket.path, error)
            return
        self._failed.pop(socket.path, None)
        self._registered[socket.path] = Registered(socket, info)
        log.info("%s %s at %s is registered", info.type, info.name, info.endpoint)

    async def _validate_and_register(self, socket: SocketFile, info: PluginInfo) -> None:
        handler = self._handlers.get(info.type)
        try:
            if handler is None:
                kind = one_line(info.type, 64)
                raise NodewrightError(f"no handler registered for plugin type: {kind} at socket {socket.path}")
            check_info(info)
            handler.validate(info)
            await handler.register(info)
        except NodewrightError as error:
            await self._registration.notify(socket, f"plugin registration failed with err: {error}")
            raise
        try:
            await self._registration.notify(socket, "")
        except NodewrightError:
            await handler.deregister(info)
            raise

    async def _deregister(self, known: Registered) -> None:
        del self._registered[known.socket.path]
        if any(one.info.is_same(known.info) for one in self._registered.values()):
            log.info("%s %s has another registrar than %s", known.info.type, known.info.name, known.socket.path)
            return
        log.info("%s %s at %s is deregistered", known.info.type, known.info.name, known.info.endpoint)
        await self._handlers[known.info.type].deregister(known.info)

    async def _wait(self, timeout: float) -> None:
        waits = {
            asyncio.ensure_future(self._sockets.changed()),
            asyncio.ensure_future(self._task_done.wait()),
            asyncio.ensure_future(self._clock.sleep(timeout)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
