"""Node allocatable: the limits of the cgroups of the system and the agent, and of all pods together.

Follows pkg/kubelet/cm/node_container_manager_linux.go. On cgroup v1 a limit below the memory in use cannot be written.
Pods keep running then, evictions free memory, and the limit is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.common.ports import Events
from agent.resources.plan.cgroups import Write
from agent.resources.plan.node_allocatable import Reserved
from agent.resources.work.cgroups import Slices
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_RETRY = 60.0  # seconds, as upstream
_DONE, _FAILED = "NodeAllocatableEnforced", "FailedNodeAllocatableEnforcement"


class ReservedTree(Protocol):
    """resources/edge/cgroups.py CgroupTree."""

    async def lacks(self, path: str, controllers: Iterable[str]) -> tuple[str, ...]: ...

    async def write(self, path: str, writes: Iterable[Write]) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeAllocatableDeps:
    """What it works with. `enforce_pods()` writes the limits of kubepods; `slices` None: the cgroupfs driver."""

    tree: ReservedTree
    slices: Slices | None
    enforce_pods: Callable[[], Awaitable[None]]
    events: Events
    clock: Clock
    node_ref: Callable[[], Json]


class NodeAllocatable:
    """Call reserve() before any pod starts; run() is long-lived."""

    def __init__(self, reserved: tuple[Reserved, ...], deps: NodeAllocatableDeps) -> None:
        self._reserved, self._deps = reserved, deps

    async def reserve(self) -> None:
        """Set the limits of the system cgroups. Raises Permanent when a configured cgroup does not exist."""
        for one in self._reserved:
            lacking = await self._deps.tree.lacks(one.path, {controller for controller, _, _ in one.writes})
            if lacking:
                raise Permanent(
                    f"there is no such cgroup (of {', '.join(lacking)})",
                    obj=f"cgroup {one.path}",
                    step=f"enforce {one.key}",
                    action="Create it before the agent starts (the agent never creates it), or correct its path.",
                )
            if self._deps.slices is not None:
                await self._deps.slices.ensure(one.path.rsplit("/", 1)[-1], list(one.properties))
            await self._deps.tree.write(one.path, one.writes)
            self._event("Normal", _DONE, f"Updated limits on {one.key} cgroup {one.path}")

    async def run(self) -> None:
        """Until cancelled: try to set the limit of all pods until that succeeds."""
        while True:
            try:
                await self._deps.enforce_pods()
                break
            except NodewrightError as error:
                log.warning("the limit of all pods is not in force yet: %s", error)
                self._event("Warning", _FAILED, f"Failed to update Node Allocatable Limits: {error}")
            await self._deps.clock.sleep(_RETRY)
        self._event("Normal", _DONE, "Updated Node Allocatable limit across pods")
        await asyncio.Event().wait()

    def _event(self, kind: str, reason: str, message: str) -> None:
        self._deps.events.emit(self._deps.node_ref(), kind, reason, message)
