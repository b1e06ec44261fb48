"""What a pod's worker notes in the timeline besides its steps, and where its plans begin and end for traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent.common.model.pods import ProbeState
from agent.pods.model.facts import Cause
from agent.pods.model.steps import PodPlan
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan import spans
from agent.pods.plan.starting import first_ready
from agent.pods.work.memory import PodMemory
from agent.pods.work.tracing import PodTracer
from nodelib.clock import Clock


class Moment(NamedTuple):
    """The same moment by both clocks, in seconds."""

    monotonic: float
    wall: float


class StartNotes:
    """One of each worker. `heard`: when the pod came from its source; `tracer` None: the pod is not traced."""

    def __init__(
        self, memory: PodMemory, clock: Clock, heard: Moment, *, is_new: bool, tracer: PodTracer | None
    ) -> None:
        self._memory, self._clock, self._is_new, self._tracer = memory, clock, is_new, tracer
        self._heard, self._has_run = heard, False
        self._probed: set[str] = set()  # ids of containers whose first good answer is noted

    def admission(self) -> float | None:
        """The worker runs: how many seconds the pod took from its source to here; None: it ran before, and failed."""
        if self._has_run:
            return None
        self._has_run = True
        took = self._clock.monotonic() - self._heard.monotonic
        if self._is_new:
            self._is_new = False
            self._memory.timeline.mark(Activity(ActivityKind.ADMIT), took)
        return took

    def first_probes(self, probes: Mapping[str, ProbeState]) -> None:
        """How long each container took from its start until its probes found it ready. `probes`: by container id."""
        memory = self._memory
        for one in first_ready(memory.pod, memory.seen, probes, self._probed, self._heard.wall) if probes else ():
            self._probed.add(one.id)
            took = max(0.0, self._clock.now() - one.started_at / 1e9)
            memory.timeline.mark(Activity(ActivityKind.FIRST_PROBE, one.name), took, attempt=one.attempt)

    def readiness(self, woken_at: float) -> None:
        """The pod has become ready, or is not any more; what told so woke the worker at that wall time (0: nothing)."""
        memory = self._memory
        if self._tracer is not None:
            self._tracer.found_ready(woken_at)
        memory.timeline.mark(Activity(ActivityKind.READY if memory.is_ready else ActivityKind.NOT_READY))
        memory.ready_since = self._clock.monotonic() if memory.is_ready else None

    def sync_began(self, plan: PodPlan, woken_at: float) -> None:
        """A plan that finds nothing to do has no span. `woken_at`: as of readiness()."""
        if self._tracer is None:
            return
        if not plan.steps:
            self._tracer.nothing_to_do()
            return
        ends = self._memory.termination
        name = spans.TERMINATED if self._memory.released else spans.SYNC if ends is None else spans.TERMINATING
        self._tracer.planned(woken_at)
        self._tracer.sync_began(name, finished=ends is not None and ends.cause is Cause.FINISHED)

    def sync_ended(self) -> None:
        """All steps of the plan have ended."""
        if self._tracer is not None:
            self._tracer.sync_ended()


def note_shown_ready(memory: PodMemory, clock: Clock) -> None:
    """The API shows that the pod is ready: how long that took from when it was."""
    if memory.ready_since is not None:
        memory.timeline.mark(Activity(ActivityKind.SHOWN_READY), clock.monotonic() - memory.ready_since)
        memory.ready_since = None
