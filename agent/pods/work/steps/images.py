"""The EnsureImage step: ask for an image. The pull goes on after the step; when it ends, the pod is planned again."""

from __future__ import annotations

import asyncio
from functools import partial

from agent.common.model.states import ImagePhase, ImageState
from agent.images.plan.images import wanted
from agent.pods.model.steps import EnsureImage
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan.activities import image_activity
from agent.pods.work.steps.context import Context


class ImageSteps:
    """The images of one pod, and its pulls in the timeline."""

    def __init__(self, context: Context, wake: asyncio.Event) -> None:
        self._context, self._wake = context, wake
        self._pulls: dict[str, int] = {}  # timeline keys by Wanted.key

    async def ensure(self, step: EnsureImage) -> None:
        want = wanted(step.container, step.volume)
        pull = image_activity(ActivityKind.PULL, step.container, step.volume)
        await self._context.deps.containers.images.ensure(
            self._context.memory.pod, want, step.attempt, partial(self._on_state, pull)
        )

    def give_up(self) -> None:
        """The pod needs no images any more."""
        memory = self._context.memory
        self._context.deps.containers.images.remove(memory.pod.uid)
        while self._pulls:
            memory.timeline.end(self._pulls.popitem()[1], "given up")

    def _on_state(self, pull: Activity, name: str, state: ImageState) -> None:
        memory = self._context.memory
        memory.images[name] = state
        if state.phase is ImagePhase.PULLING:
            self._pulls[name] = memory.timeline.begin(pull)
        elif name in self._pulls:
            failed = state.waiting if state.phase is ImagePhase.FAILED else None
            memory.timeline.end(self._pulls.pop(name), failed.message or failed.reason if failed else "ok")
        self._wake.set()
