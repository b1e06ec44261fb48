"""kubeletCgroups and systemCgroups: the cgroups of the agent's own process and of all others that have none.

Follows pkg/kubelet/cm/container_manager_linux.go (setupNode, ensureSystemCgroups): looked at every minute. Kernel
threads and process 1 stay where they are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.resources.plan.cgroups import Write
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.tasks import Work

log = logging.getLogger(__name__)

_PERIOD = 60.0  # seconds
_ROUNDS = 10  # processes that start meanwhile are there in the next one


class ProcessTree(Protocol):
    """resources/edge/cgroups.py CgroupTree."""

    async def make(self, path: str, writes: Iterable[Write]) -> None: ...

    async def attach(self, path: str, pids: Iterable[int]) -> None: ...

    async def movable(self, path: str) -> frozenset[int]: ...


@dataclass(frozen=True, slots=True)
class SystemCgroupPaths:
    """Where they are, "" for none. `root`: the cgroup whose processes belong into `system`."""

    kubelet: str = ""
    system: str = ""
    root: str = "/"


class SystemCgroups:
    """Call setup() before any pod starts, then run tasks()."""

    def __init__(self, paths: SystemCgroupPaths, tree: ProcessTree, clock: Clock) -> None:
        self._paths, self._tree, self._clock = paths, tree, clock

    async def setup(self) -> None:
        """Create the cgroups and fill them. Raises NodewrightError when one cannot be made."""
        for path in filter(None, (self._paths.system, self._paths.kubelet)):
            await self._tree.make(path, ())
        await self._ensure()

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work; none if neither is configured."""
        return {"system-cgroups": self.run} if self._paths.kubelet or self._paths.system else {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(_PERIOD)
            await self._ensure()

    async def _ensure(self) -> None:
        try:
            if self._paths.kubelet:  # first: it is no other process then
                await self._tree.attach(self._paths.kubelet, {os.getpid()})
            if self._paths.system:
                await self._gather()
        except NodewrightError as error:
            log.warning("processes stay in their cgroups until the next try: %s", error)

    async def _gather(self) -> None:
        for _ in range(_ROUNDS):
            if not (found := await self._tree.movable(self._paths.root)):
                return
            log.debug("into %s: processes %s", self._paths.system, sorted(found))
            await self._tree.attach(self._paths.system, found)
