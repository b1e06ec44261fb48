"""What is kept for the system and for the agent: the limits of their cgroups, and of the pods' own.

Follows pkg/kubelet/cm/node_container_manager_linux.go. A limit below what pods use already cannot be
written on cgroup v1: pods run on, evictions bring the use down, and it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import Json
from agent.common.ports import Events
from agent.resources.plan.cgroups import Write
from agent.resources.plan.node_allocatable import Reserved
from agent.resources.work.cgroups import Slices
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent

log = logging.getLogger(__name__)

_RETRY = 60.0  # seconds, as upstream
_DONE, _FAILED = "NodeAllocatableEnforced", "FailedNodeAllocatableEnforcement"


class ReservedTree(Protocol):
    """resources/edge.py CgroupTree."""

    async def lacks(self, path: str, controllers: Iterable[str]) -> tuple[str, ...]: ...

    async def write(self, path: str, writes: Iterable[Write]) -> None: ...


@dataclass(frozen=True, slots=True)
class AllocatableParts:
    """`enforce_pods()` writes the limits of the pods' own cgroup; `slices` None: the cgroupfs driver."""

    tree: ReservedTree
    slices: Slices | None
    enforce_pods: Callable[[], Awaitable[None]]
    events: Events
    clock: Clock
    node_ref: Callable[[], Json]


class NodeAllocatable:
    """reserve() before any pod starts, run() beside them."""

    def __init__(self, reserved: tuple[Reserved, ...], parts: AllocatableParts) -> None:
        self._reserved, self._parts = reserved, parts

    async def reserve(self) -> None:
        """Bound what is not pods. Raises Permanent when a cgroup that was named is not there."""
        for one in self._reserved:
            lacking = await self._parts.tree.lacks(one.path, {controller for controller, _, _ in one.writes})
            if lacking:
                raise Permanent(
                    f"there is no such cgroup (of {', '.join(lacking)})",
                    obj=f"cgroup {one.path}",
                    step=f"enforce {one.key}",
                    action="Make it before the agent starts (the agent never makes it), or correct its path.",
                )
            if self._parts.slices is not None:
                await self._parts.slices.ensure(one.path.rsplit("/", 1)[-1], list(one.properties))
            await self._parts.tree.write(one.path, one.writes)
            self._tell("Normal", _DONE, f"Updated limits on {one.key} cgroup {one.path}")

    async def run(self) -> None:
        """Until cancelled: the pods' own limit, until it holds."""
        while True:
            try:
                await self._parts.enforce_pods()
                break
            except NodewrightError as error:
                log.warning("the limit of all pods is not in force: %s", error)
                self._tell("Warning", _FAILED, f"Failed to update Node Allocatable Limits: {error}")
            await self._parts.clock.sleep(_RETRY)
        self._tell("Normal", _DONE, "Updated Node Allocatable limit across pods")
        await asyncio.Event().wait()

    def _tell(self, kind: str, reason: str, message: str) -> None:
        self._parts.events.emit(self._parts.node_ref(), kind, reason, message)
