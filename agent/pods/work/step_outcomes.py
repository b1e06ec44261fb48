"""What a step that has ended changes in the pod's memory: the next plan pauses after a failure, and tries again."""

from __future__ import annotations

import random

from agent.admission.plan.labels import rejection as rejection_label
from agent.pods.model.steps import Resize, Start, Step
from agent.pods.plan import failures
from agent.pods.plan.termination import combined
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.resources.plan import resize_status


class StepOutcomes:
    """Of one pod."""

    def __init__(self, deps: PodDeps, memory: PodMemory) -> None:
        self._deps, self._memory = deps, memory
        self._failing: type[Step] | None = None  # the kind of step whose failure is in `memory.blocked`

    def succeeded(self, step: Step) -> None:
        if isinstance(step, Start):
            self._memory.failures.pop(step.container["name"], None)
        elif isinstance(step, Resize):
            self._memory.resize_failure = None
        elif failures.unblocks(step, self._failing):
            self._memory.blocked = None

    def failed(self, step: Step, reason: str, message: str, action: str = "") -> None:
        memory, now, jitter = self._memory, self._deps.clock.steady(), random.uniform(0.9, 1.1)
        if isinstance(step, Resize):
            memory.resize_failure = failures.resize_failure(reason, message, now, jitter)
            self._report_resize(message, self._deps.clock.now())
            return
        rejected = failures.rejection_of(reason, message, now, memory.blocked)
        if rejected is not None:
            if memory.termination is None:
                self._deps.metrics.admission_rejections.labels(rejection_label(reason)).inc()
            memory.termination = combined(memory.termination, rejected)
        if container := failures.blocked_container(step):
            before = memory.failures.get(container)
            memory.failures[container] = failures.failure(before, reason, message, action, now, jitter)
        else:
            memory.blocked = failures.failure(memory.blocked, reason, message, action, now, jitter)
            self._failing = type(step)

    def _report_resize(self, message: str, now: float) -> None:
        memory = self._memory
        generation = int(memory.pod.meta.get("generation") or 0)
        memory.resize, news = resize_status.failed(memory.resize, message, generation, now)
        if news and memory.resize.progress is not None:
            generation = memory.resize.progress.generation
            text = resize_status.event_message("Pod resize error", memory.pod, generation, message)
            self._deps.events.emit(memory.pod.raw, "Warning", "ResizeError", text)
