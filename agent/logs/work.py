"""Rotation of container logs, which keeps them within containerLogMaxSize and containerLogMaxFiles.

Same contract as upstream's container log manager (pkg/kubelet/logs): every containerLogMonitorInterval the logs of
running containers are checked. One that is too long is renamed and the runtime is asked to open a new one. If the
runtime does not do so, the rename is undone, so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, RunState
from agent.logs.model import LogSettings
from agent.logs.plan.rotation import RotationPlan, plan_rotation
from agent.runtime.ports import RuntimeService
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError, Temporary

log = logging.getLogger(__name__)


class LogFolder(Protocol):
    """The files of one container's log (logs/edge/log_folder.py). Every call raises Temporary."""

    def size(self, path: str) -> int | None: ...

    def names(self, folder: str) -> list[str]: ...

    def remove(self, path: str) -> None: ...

    def rename(self, path: str, to: str) -> None: ...

    def pack(self, path: str) -> None: ...


class LogRotation:
    """Rotates the logs of running containers while run() runs.

    `containers` returns what the agent has observed, with log paths and states: the check makes no call to the runtime.
    """

    def __init__(
        self,
        settings: LogSettings,
        runtime: RuntimeService,
        folder: LogFolder,
        containers: Callable[[], Iterable[ContainerState]],
        clock: Clock,
        on_rotated: Callable[[], None] = lambda: None,
    ) -> None:
        if settings.max_files <= 1:
            raise Invalid(
                f"containerLogMaxFiles {settings.max_files} is too few",
                step="set up log rotation",
                action="Set it to 2 or more: the current log and one rotated log.",
            )
        self._settings = settings
        self._runtime = runtime
        self._folder = folder
        self._containers = containers
        self._clock = clock
        self._on_rotated = on_rotated
        self._slots = asyncio.Semaphore(max(1, settings.workers))

    async def run(self) -> None:
        """Until cancelled."""
        if self._settings.max_size < 0:
            await asyncio.Event().wait()
        while True:
            # The pause comes first, because a starting agent has more urgent work.
            await self._clock.sleep(self._settings.monitor_interval)
            await self.rotate_all()

    async def rotate_all(self) -> int:
        """Rotate the logs that are due and return how many were rotated."""
        running = [entry for entry in self._containers() if entry.state is RunState.RUNNING and entry.log_path]
        due = [entry for entry in running if self._is_due(entry)]
        return sum(await asyncio.gather(*(self._guarded(entry) for entry in due)))

    def _is_due(self, container: ContainerState) -> bool:
        """Also where it cannot be told: the rotation says why."""
        try:
            size = self._folder.size(container.log_path)
        except Temporary:
            return True
        return size is None or size >= self._settings.max_size

    async def _guarded(self, container: ContainerState) -> bool:
        async with self._slots:
            try:
                return await self._rotate(container)
            except (NodewrightError, FileNotFoundError) as error:
                log.warning("log of container %s (%s) not rotated: %s", container.name, container.id[:13], error)
                return False

    async def _rotate(self, container: ContainerState) -> bool:
        path = container.log_path
        if self._folder.size(path) is None:
            # The file was removed: until the runtime opens a new one, it writes into the deleted file.
            await self._runtime.reopen_log(container.id)
            return False
        folder = os.path.dirname(path)
        plan = await asyncio.to_thread(self._make_room, path, self._clock.now())
        rotated = os.path.join(folder, plan.rotated)
        self._folder.rename(path, rotated)
        try:
            await self._runtime.reopen_log(container.id)
        except CriError:
            if self._folder.size(path) is None:
                self._folder.rename(rotated, path)
            raise
        log.info("log of container %s (%s) rotated to %s", container.name, container.id[:13], plan.rotated)
        self._on_rotated()
        return True

    def _make_room(self, path: str, now: float) -> RotationPlan:
        """Remove and compress older files. Returns the plan, which names the next one."""
        folder, current = os.path.split(path)
        plan = plan_rotation(current, self._folder.names(folder), self._settings.max_files, now)
        for name in plan.remove:
            self._folder.remove(os.path.join(folder, name))
        for name in plan.pack:
            self._folder.pack(os.path.join(folder, name))
        return plan
