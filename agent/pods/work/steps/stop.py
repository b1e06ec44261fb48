"""The Kill and PreStop steps: run the preStop hook, stop the container, wait until its end is seen (killContainer)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from agent.common.model.errors import CriError
from agent.common.model.pods import RunState
from agent.pods.model.steps import Kill, PreStop
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan.termination import grace_left, hook_due, kill_after_long_hook
from agent.pods.work.steps.context import Context, StepFailed
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_KILL_PATIENCE = 10.0  # seconds from the runtime's SIGKILL until the agent helps
_FIRST_PAUSE, _LONGEST_PAUSE, _REFRESHES = 0.05, 0.5, 5  # seconds, seconds, at most so many


class StopSteps:
    """Stops the containers of one pod."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def kill(self, step: Kill) -> None:
        """Raises StepFailed."""
        context, memory = self._context, self._context.memory
        hook = hook_due(step, memory.prestop_ran)
        if step.container_id not in memory.stopping:
            memory.stopping.add(step.container_id)
            context.event("Killing", step.message, step.name)
        if step.restart:
            memory.restart_wanted.add(step.container_id)
        began, stopping = context.deps.clock.monotonic(), Activity(ActivityKind.STOP, step.name)
        try:
            async with contextlib.AsyncExitStack() as stack:
                if hook:
                    with memory.timeline.step(Activity(ActivityKind.PRE_STOP, step.name), of=stopping):
                        ran = self._pre_stop(step.container_id, step.name, hook, step.grace)
                        began = await stack.enter_async_context(ran)
                left = grace_left(step.grace, context.deps.clock.monotonic() - began)
                await stack.enter_async_context(context.turn_to_end())  # its grace begins with its SIGTERM
                found = memory.seen.container(step.container_id)
                if found is not None and found.state is RunState.EXITED:
                    return  # while it waited
                stack.enter_context(context.acting(step.container_id))
                with memory.timeline.step(Activity(ActivityKind.SIGNAL, step.name), of=stopping):
                    await self._stop(step, left)
        except CriError as error:
            context.warn("FailedKillPod", f"error killing container {step.name}: {error.message}", step.name)
            raise StepFailed("FailedKillPod", error) from error
        finally:
            await context.uninterrupted(context.refresh(container=step.container_id))
        await self._wait_for_end(step.container_id)

    async def _stop(self, step: Kill, grace: int) -> None:
        """Stop the container through the runtime, which kills it when the grace is over.

        Thousands of processes that share a small CPU quota take minutes to die of that (a fork bomb), so the agent
        helps when it takes long. Upstream's kubelet reports FailedKillPod again and again. Raises CriError.
        """
        deps = self._context.deps
        call = asyncio.ensure_future(deps.containers.runtime.stop_container(step.container_id, grace))
        timer = asyncio.ensure_future(deps.clock.sleep(grace + _KILL_PATIENCE))
        try:
            await asyncio.wait({call, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                log.warning(
                    "pod %s: container %s still runs %g s after SIGKILL: its processes are killed without a CPU limit",
                    self._context.memory.pod.full_name,
                    step.name,
                    _KILL_PATIENCE,
                )
                with contextlib.suppress(NodewrightError):
                    await deps.resources.cgroups.end_container(self._context.memory.pod.uid, step.container_id)
            await call
        finally:
            await cancel_and_wait(call, timer)

    async def early_hook(self, step: PreStop) -> None:
        """Run the hook of a container that a later plan stops."""
        clock = self._context.deps.clock
        async with self._pre_stop(step.container_id, step.name, step.hook, step.grace) as began:
            late = kill_after_long_hook(step, clock.monotonic() - began)
            if late is not None:
                await self.kill(late)

    async def _wait_for_end(self, container_id: str) -> None:
        """Wait until the exit is seen: a busy containerd returns earlier, and the next plan would stop it again."""
        pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        for _ in range(_REFRESHES):
            if not self._context.memory.seen.runs(container_id):
                return
            await self._context.deps.clock.sleep(pauses.next())
            await self._context.refresh(container=container_id)

    @contextlib.asynccontextmanager
    async def _pre_stop(self, container_id: str, name: str, spec: Json, grace: int) -> AsyncIterator[float]:
        """Start the hook, and enter the block when it has ended or the grace is over, with the (monotonic) time when it
        began. A command has a turn among all that ends, as it is some processes of the runtime, too.

        A hook that still runs is cancelled after the block.
        """
        context, memory, pod = self._context, self._context.memory, self._context.memory.pod
        found = pod.container(name)
        container = found[1] if found else {"name": name}
        async with contextlib.AsyncExitStack() as turn:
            if spec.get("exec"):
                await turn.enter_async_context(context.turn_to_end())
            memory.prestop_ran.add(container_id)
            began, ips = context.deps.clock.monotonic(), context.ips(memory.seen.sandbox)
            hook = asyncio.ensure_future(context.deps.containers.hooks.run(pod, container, container_id, spec, ips))
            timer = asyncio.ensure_future(context.deps.clock.sleep(grace))
            try:
                await asyncio.wait({hook, timer}, return_when=asyncio.FIRST_COMPLETED)
                await turn.aclose()
                self._report_hook(name, hook)
                yield began
            finally:
                timer.cancel()
                await cancel_and_wait(hook)

    def _report_hook(self, name: str, hook: asyncio.Future[None]) -> None:
        """Whether it has ended, and how. Raises what is no answer of it."""
        context, pod = self._context, self._context.memory.pod
        if not hook.done():
            log.warning("pod %s: preStop hook of %s took the whole grace", pod.full_name, name)
        elif (error := hook.exception()) is not None:
            if not isinstance(error, NodewrightError):
                raise error
            log.warning("pod %s: preStop hook of %s: %s", pod.full_name, name, error)
            context.warn("FailedPreStopHook", "PreStopHook failed", name)
