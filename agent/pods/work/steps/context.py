"""What every step of one pod is walked with: the deps, the pod's memory, looks at the runtime, events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent.common.model.errors import CriError
from agent.common.model.pods import SandboxState
from agent.pods.plan.starting import ips_for
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between looks at a runtime that does not answer


class StepFailed(NodewrightError):
    """A step did not succeed: `reason` is the waiting state or event reason that upstream has for it."""

    def __init__(self, reason: str, cause: NodewrightError) -> None:
        super().__init__(cause.message, obj=cause.obj, step=cause.step, action=cause.action)
        self.reason = reason


class Context:
    """One for each pod's worker."""

    def __init__(self, deps: PodDeps, memory: PodMemory) -> None:
        self.deps, self.memory = deps, memory
        self._uninterrupted: set[asyncio.Task[Any]] = set()

    def cancel(self) -> None:
        """The agent stops: cut short even what a pod's ending would not."""
        for task in self._uninterrupted:
            task.cancel()

    def under_way(self) -> frozenset[asyncio.Task[Any]]:
        """Work that should come to its end: a container that is being started."""
        return frozenset(self._uninterrupted)

    async def uninterrupted(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end even if cancelled meanwhile; the cancellation counts afterwards."""
        task = asyncio.ensure_future(work)
        self._uninterrupted.add(task)
        task.add_done_callback(self._uninterrupted.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("pod %s: it ends while this failed: %s", self.memory.pod.full_name, error)
            raise

    def acting(self, target: str = "") -> contextlib.AbstractContextManager[None]:
        """The runtime's events about `target` (a sandbox or container, "": any) are this step's own meanwhile."""
        return self.deps.observer.acting(self.memory.pod.uid, target)

    async def refresh(self, *, sandbox: str = "", container: str = "", afresh: bool = False) -> None:
        """See what has come of a step: at what it made or ended, or with neither named at the whole pod. Nothing is
        planned on a view from before it, so this goes on until it is had."""
        observer, uid, pauses = self.deps.observer, self.memory.pod.uid, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                if sandbox or container:
                    await observer.look_at(uid, sandbox=sandbox, container=container)
                else:
                    await (observer.reinspect(uid) if afresh else observer.refresh(uid))
                return
            except CriError as error:
                pause = pauses.next()
                log.warning("pod %s: %s; next look in %.1f s", self.memory.pod.full_name, error, pause)
            await self.deps.clock.sleep(pause)

    def ips(self, sandbox: SandboxState | None) -> tuple[str, ...]:
        """The pod's addresses in this sandbox."""
        return ips_for(self.memory.pod, sandbox, self.deps.host_ips())

    def event(self, reason: str, message: str, container: str = "") -> None:
        """A Normal event of the pod."""
        self.deps.events.emit(self.memory.pod.raw, "Normal", reason, message, container=container)

    def warn(self, reason: str, message: str, container: str = "") -> None:
        """A Warning event of the pod."""
        self.deps.events.emit(self.memory.pod.raw, "Warning", reason, message, container=container)
