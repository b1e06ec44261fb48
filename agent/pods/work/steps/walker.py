"""Maps each step to the function that does it. Nothing is decided here: a step does its work or raises."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.pods.model.steps import (
    ConfirmDeletion,
    EnsureImage,
    Kill,
    Prepare,
    PreStop,
    Release,
    RemoveContainer,
    RemovePod,
    RemoveSandbox,
    Resize,
    RunSandbox,
    Start,
    Step,
    StopSandbox,
)
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.pods.work.steps import prepare, release, resize
from agent.pods.work.steps.context import Context
from agent.pods.work.steps.images import ImageSteps
from agent.pods.work.steps.sandbox import SandboxSteps
from agent.pods.work.steps.start import StartSteps
from agent.pods.work.steps.stop import StopSteps


class Walker:
    """Does the steps of one pod. `wake` makes its worker plan again."""

    def __init__(self, deps: PodDeps, memory: PodMemory, wake: asyncio.Event) -> None:
        self._context = context = Context(deps, memory)
        self._images = ImageSteps(context, wake)
        self._sandboxes, self._stops = SandboxSteps(context), StopSteps(context)
        self._starts = StartSteps(context, self._sandboxes, self._stops)

    def cancel(self) -> None:
        """The agent stops: cancel even work that a termination of the pod would not interrupt."""
        self._context.cancel()

    def uninterrupted(self) -> frozenset[asyncio.Task[Any]]:
        """Running work that should end by itself: a container that is being started."""
        return self._context.under_way()

    async def walk(self, step: Step) -> None:
        """Do the step. Raises StepFailed or another NodewrightError."""
        context = self._context
        match step:
            case Prepare():
                await prepare.walk(context, step)
            case EnsureImage():
                await self._images.ensure(step)
            case RunSandbox():
                await self._sandboxes.run(step)
            case Start():
                await self._starts.walk(step)
            case Kill():
                await self._stops.kill(step)
            case PreStop():
                await self._stops.early_hook(step)
            case Resize():
                await resize.walk(context, step)
            case StopSandbox():
                await self._sandboxes.stop(step)
            case RemoveContainer():
                await release.remove_container(context, step)
            case RemoveSandbox():
                await release.remove_sandbox(context, step)
            case Release():
                self._images.give_up()
                await release.release(context)
            case ConfirmDeletion():
                await release.confirm(context)
            case RemovePod():
                await release.remove_logs(context)
