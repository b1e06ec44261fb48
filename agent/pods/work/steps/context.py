"""What all steps of one pod share: dependencies, the pod's memory, fresh views of the runtime, events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from agent.common.model.errors import CriError
from agent.common.model.pods import SandboxState
from agent.pods.plan.start_inputs import ips_for
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between two tries while the runtime does not answer
_NO_WAIT = 0.1  # seconds: a turn that came at once


class StepFailed(NodewrightError):
    """A step failed; `reason` is upstream's reason of the waiting state or event."""

    def __init__(self, reason: str, cause: NodewrightError) -> None:
        super().__init__(cause.message, obj=cause.obj, step=cause.step, action=cause.action)
        self.reason = reason


class Context:
    """Each pod's worker has one."""

    def __init__(self, deps: PodDeps, memory: PodMemory) -> None:
        self.deps, self.memory = deps, memory
        self._uninterrupted: set[asyncio.Task[Any]] = set()
        self._waiting_to_end, self._waits_since = 0, 0.0  # how many, and since when (steady seconds) there are any

    def cancel(self) -> None:
        """The agent stops: cancel even work that a termination of the pod would not interrupt."""
        for task in self._uninterrupted:
            task.cancel()

    def under_way(self) -> frozenset[asyncio.Task[Any]]:
        """Work that should end by itself: a container that is being started."""
        return frozenset(self._uninterrupted)

    async def uninterrupted(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` to its end even if cancelled meanwhile; the cancellation is raised afterwards."""
        task = asyncio.ensure_future(work)
        self._uninterrupted.add(task)
        task.add_done_callback(self._uninterrupted.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("pod %s: failed while the pod was being terminated: %s", self.memory.pod.full_name, error)
            raise

    @contextlib.asynccontextmanager
    async def turn_to_end(self) -> AsyncIterator[None]:
        """Wait until a container or the sandbox may end. A pod that the node ends to help itself does not wait."""
        async with contextlib.AsyncExitStack() as stack:
            if not self._is_disrupted:
                with self._without_grace():
                    await stack.enter_async_context(self.deps.containers.ends.turn(self.memory.pod.namespace))
            yield

    @contextlib.asynccontextmanager
    async def turn_to_release(self) -> AsyncIterator[None]:
        """Wait until what the pod had may be cleaned up, as in turn_to_end()."""
        async with contextlib.AsyncExitStack() as stack:
            if not self._is_disrupted:
                gate = self.deps.containers.release_gate
                await stack.enter_async_context(gate.place(group=self.memory.pod.namespace))
            yield

    @property
    def _is_disrupted(self) -> bool:
        return self.memory.termination is not None and self.memory.termination.disrupted

    @contextlib.contextmanager
    def _without_grace(self) -> Iterator[None]:
        """As long as anything of the pod is in this block, its grace does not run: sidecars share what is left of it
        after the others have ended, and would have none."""
        memory, now = self.memory, self.deps.clock.steady
        if not self._waiting_to_end:
            self._waits_since = now()
        self._waiting_to_end += 1
        try:
            yield
        finally:
            self._waiting_to_end -= 1
            if not self._waiting_to_end and memory.termination is not None:
                waited = now() - max(self._waits_since, memory.termination.since)
                if waited > _NO_WAIT:
                    memory.termination = replace(memory.termination, since=memory.termination.since + waited)

    def acting(self, target: str = "") -> contextlib.AbstractContextManager[None]:
        """During the block, runtime events about `target` (a sandbox or container, "": any) come from this step."""
        return self.deps.observer.acting(self.memory.pod.uid, target)

    async def refresh(self, *, sandbox: str = "", container: str = "", afresh: bool = False) -> None:
        """Refresh the view of what a step has changed: this sandbox or container, or the whole pod if neither is given.

        `afresh`: read container statuses again as well. Tries until the runtime answers: no plan may be made from a
        view from before the step.
        """
        observer, uid, pauses = self.deps.observer, self.memory.pod.uid, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                if sandbox or container:
                    await observer.refresh_one(uid, sandbox=sandbox, container=container)
                else:
                    await (observer.reinspect(uid) if afresh else observer.refresh(uid))
                return
            except CriError as error:
                pause = pauses.next()
                log.warning("pod %s: %s; next try in %.1f s", self.memory.pod.full_name, error, pause)
            await self.deps.clock.sleep(pause)

    def ips(self, sandbox: SandboxState | None) -> tuple[str, ...]:
        """The pod's addresses in this sandbox."""
        return ips_for(self.memory.pod, sandbox, self.deps.host_ips())

    def own_users_failed(self) -> None:
        """A step for a pod with users of its own has failed. Counted once for each sandbox, as upstream counts syncs
        that make one and fail."""
        if self.memory.own_users_untried:
            self.memory.own_users_untried = False
            self.deps.metrics.started_user_namespaced_pods_errors.inc()

    def event(self, reason: str, message: str, container: str = "") -> None:
        """Emit a Normal event about the pod."""
        self.deps.events.emit(self.memory.pod.raw, "Normal", reason, message, container=container)

    def warn(self, reason: str, message: str, container: str = "") -> None:
        """Emit a Warning event about the pod."""
        self.deps.events.emit(self.memory.pod.raw, "Warning", reason, message, container=container)
