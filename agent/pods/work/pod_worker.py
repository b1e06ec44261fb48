"""The worker of one pod: plan, do all steps of the plan at once, plan again (podWorkerLoop of pod_workers.go, SyncPod).

News (a new object, the runtime's view, a probe's result) only changes what the next plan sees. Nothing is planned
before all steps of the last plan have ended, so no container can be started by two plans. The status is computed and
sent while steps are still running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypedDict

from agent.common.metrics import CONTAINER_TYPES
from agent.common.model.eviction import Eviction
from agent.common.model.labels import keep_hashes
from agent.common.model.pods import ObservedPod, Pod
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.model.steps import EnsureImage, Kill, PodPlan, PreStop, RemovePod, Resize, RunSandbox, Start, Step
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan import container_exits as exits
from agent.pods.plan import failures, resize, restart_backoff
from agent.pods.plan.activities import activity_of
from agent.pods.plan.pod import plan_pod
from agent.pods.plan.starting import is_new
from agent.pods.plan.termination import combined, termination_of
from agent.pods.plan.waiting import back_off_message, new_back_offs, waiting_now
from agent.pods.work.deferrals import end_deferral
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.pods.work.start_notes import Moment, StartNotes
from agent.pods.work.status_report import StatusReport
from agent.pods.work.step_outcomes import StepOutcomes
from agent.pods.work.steps.walker import Walker
from agent.pods.work.timeline import Timeline
from agent.pods.work.wakening import Wakening
from agent.probes.model import ProbeKind
from agent.resources.model import ResizeState
from agent.resources.plan import resize_status
from agent.resources.plan.resize_labels import Resolution
from nodelib.clock import since
from nodelib.errors import NodewrightError
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)


class _Details(TypedDict, total=False):
    note: str
    probe: ProbeKind | None
    attempt: int


class PodWorker:
    """`on_gone(uid)` is called when nothing of the pod is left. `desired` (see PodMemory) defaults to `pod`."""

    def __init__(self, pod: Pod, deps: PodDeps, on_gone: Callable[[str], None], desired: Pod | None = None) -> None:
        heard, seen = Moment(deps.clock.monotonic(), deps.clock.now()), deps.observer.seen(pod.uid)
        new = is_new(pod, seen)
        tracer = deps.tracing.follower(pod, heard.wall, is_new=new) if deps.tracing is not None else None
        self.memory = PodMemory(pod, desired or pod, Timeline(deps.clock, tracer), seen=seen)
        self._notes = StartNotes(self.memory, deps.clock, heard, is_new=new, tracer=tracer)
        self._deps, self._on_gone = deps, on_gone
        self._awake, self._woken_at = Wakening(deps.clock), 0.0
        self._turn = deps.plan_turns.of(pod.namespace)
        self._steps = Walker(deps, self.memory, self._awake)
        self._outcomes = StepOutcomes(deps, self.memory)
        self._urgent = self._planning_stopped = False
        self._report = StatusReport(deps, self.memory, self._notes, heard.monotonic)
        self._note_ends()
        self.memory.backoff = restart_backoff.implied(pod, seen, self.memory.ended, deps.containers.restarts)

    def update(self, pod: Pod | None, desired: Pod | None = None) -> None:
        """The newest object, with its allocated (`pod`) and its wanted (`desired`) resources; None: it is gone."""
        if pod is None:
            self.memory.gone = True
        else:
            keep_hashes(self.memory.pod, pod)
            self.memory.pod, self.memory.desired = pod, desired or pod
        self._hurry_if(self._update_termination())
        self._awake.set()

    def resize(self, state: ResizeState, allocated: Pod | None = None) -> None:
        """The new state of a resize; `allocated`: the pod with a new allocation."""
        self.memory.resize = state
        if allocated is not None:
            keep_hashes(self.memory.pod, allocated)
            self.memory.pod, self.memory.resize_failure = allocated, None
        self._awake.set()

    def observe(self, seen: ObservedPod) -> None:
        """The runtime's newest view."""
        for one in exits.ended(self.memory.seen, seen):
            ended = Activity(ActivityKind.ENDED, one.name)
            self.memory.timeline.mark(ended, exits.lifetime(one), exits.how(one), attempt=one.attempt)
        self.memory.seen = seen
        self._note_ends()
        self.memory.forget_old()
        self._awake.set()

    def terminate(self, termination: Termination) -> None:
        """Terminate the pod for a reason of the node (rejection, eviction)."""
        before = self.memory.termination
        self.memory.termination = combined(before, termination)
        self._hurry_if(self.memory.termination is not before)
        self._awake.set()

    def evict(self, eviction: Eviction) -> None:
        """Fail the pod for the sake of the node."""
        now, one = self._deps.clock.steady(), eviction
        self.terminate(Termination(Cause.EVICTED, now, one.grace, one.reason, one.message, one.disrupted))

    def drop_records(self) -> None:
        """Once the pod has terminated, remove its containers from the runtime: the node needs the room."""
        if not self.memory.drop_records:
            self.memory.drop_records = True
            self._awake.set()

    def stop_planning(self) -> frozenset[asyncio.Task[Any]]:
        """The agent stops: make no more plans. Returns the tasks that should end before the worker is cancelled."""
        self._planning_stopped = True
        return self._steps.uninterrupted()

    def wake(self) -> None:
        """An input of the plan has changed: plan again."""
        self._awake.set()

    def refresh_volumes(self) -> None:
        """The sources of the pod's volumes have changed: write the new content, or mount it with the first Prepare."""
        if self.memory.prepared is None:
            self.memory.blocked, self.memory.volumes_changed = None, True
            self._awake.set()
        else:
            self._deps.resources.volume_refreshes.request(self.memory)

    def retry_blocked(self) -> None:
        """Something that a failed step may have waited for is there: try the step again at once."""
        if self.memory.blocked is not None:
            self.memory.blocked = failures.without_pause(self.memory.blocked)
            self._awake.set()

    async def run(self) -> None:
        """Until nothing of the pod is left, or until cancelled: then its containers run on."""
        walking: dict[asyncio.Task[None], Step] = {}
        operation, began = "create", self._deps.clock.monotonic()
        waited = self._notes.admission()
        if waited is not None and self.memory.pod.source != "runtime":  # what only the runtime knows is not started
            self._deps.metrics.pod_worker_start_duration.observe(waited)
        try:
            while True:
                await self._turn.wait()
                self._woken_at = self._awake.take()
                self._turn.begin()
                if self._update_termination() or self._urgent:
                    self._urgent = False
                    _interrupt(walking)
                if (
                    not walking
                    and not self._planning_stopped
                    and not self._deps.observer.is_unclear(self.memory.pod.uid)
                ):
                    began = self._deps.clock.monotonic()
                    plan = self._next_plan()
                    self._send_status()
                    self._notes.sync_began(plan, self._woken_at)
                    walking = {asyncio.create_task(self._walk(step)): step for step in plan.steps}
                    if self.memory.termination is not None:
                        self._turn.urgent_after(walking)  # what stops next shares their grace
                    if not walking:
                        operation = self._synced(operation, began)
                elif walking:
                    self._send_status()
                self._turn.end()
                done = await self._wait(set(walking))
                if done and len(done) == len(walking):
                    operation = self._synced(operation, began)
                removed = any(isinstance(walking.pop(task), RemovePod) and _succeeded(task) for task in done)
                if removed:
                    break
        finally:
            self._steps.cancel()
            await cancel_and_wait(*walking)
        self._deps.status.manager.remove(self.memory.pod.uid)
        self._on_gone(self.memory.pod.uid)

    def _synced(self, operation: str, began: float) -> str:
        """All steps of a plan have ended: measure it. Returns the name of the next operation (upstream's label)."""
        self._notes.sync_ended()
        kind = "kill" if self.memory.termination is not None else operation
        self._deps.metrics.pod_worker_duration.labels(kind).observe(self._deps.clock.monotonic() - began)
        return "sync"

    def _hurry_if(self, urgent: bool) -> None:
        if urgent:
            self._urgent = True
            self._turn.urgent.set()

    def _update_termination(self) -> bool:
        """Terminate the pod if there is a reason to; True if that is new or has a shorter grace."""
        memory, before = self.memory, self.memory.termination
        present = None if memory.gone else memory.pod
        phase = str(memory.status.get("phase") or memory.pod.status.get("phase") or "")
        memory.note_start(self._deps.clock)
        memory.termination = termination_of(
            present, memory.pod, phase, before, self._deps.clock.steady(), memory.started
        )
        self._deps.status.terminations.record(memory.pod.uid, memory.termination)
        now = memory.termination
        return now is not None and (before is None or now.grace < before.grace)

    def _note_ends(self) -> None:
        """Remember when its containers ended, from which back-offs run: no step of the wall clock moves that."""
        memory, clock = self.memory, self._deps.clock
        ended = {one.id: one.finished_at / 1e9 for one in memory.seen.containers if one.finished_at}
        memory.ended = {one: memory.ended.get(one) or since(clock, at) for one, at in ended.items()}

    def _next_plan(self) -> PodPlan:
        memory, facts = self.memory, self._report.facts()
        self._turn.urgent.clear()
        self._update_resize(facts)
        plan = plan_pod(memory.pod, memory.seen, facts)
        for name in new_back_offs(plan, memory.waiting):
            text = back_off_message(name, memory.pod)
            self._deps.events.emit(memory.pod.raw, "Warning", "BackOff", text, container=name)
        memory.waiting = waiting_now(plan, memory.waiting)
        memory.plan = plan
        return plan

    def _send_status(self) -> None:
        self._report.send(self._woken_at)
        if self.memory.termination is None and self.memory.status.get("phase") in ("Succeeded", "Failed"):
            self._awake.set()  # to terminate what has finished

    def _update_resize(self, facts: Facts) -> None:
        """Compare what is allocated with what is in force. Only between plans: then the runtime's view is fresh."""
        memory = self.memory
        if facts.termination is not None:
            end_deferral(self._deps, memory, Resolution.TERMINATED)
        memory.resize, completed = resize.next_state(memory.resize, memory.pod, memory.seen, facts)
        if completed is not None:
            text = resize_status.event_message("Pod resize completed", memory.pod, completed.generation)
            self._deps.events.emit(memory.pod.raw, "Normal", "ResizeCompleted", text)

    async def _walk(self, step: Step) -> None:
        memory, what = self.memory, activity_of(step)
        if isinstance(step, Start):
            self._deps.metrics.started_containers.labels(CONTAINER_TYPES[step.kind]).inc()
        try:
            with memory.timeline.step(what, **_details(step)):
                await self._steps.walk(step)
            self._outcomes.succeeded(step)
        except NodewrightError as error:
            reason = getattr(error, "reason", type(error).__name__)
            self._outcomes.failed(step, reason, error.message, error.action)
            if isinstance(step, Start):
                self._deps.metrics.started_containers_errors.labels(CONTAINER_TYPES[step.kind], reason).inc()
            log.warning("pod %s: %s: %s", memory.pod.full_name, what.words, error)
        except Exception as error:
            self._outcomes.failed(step, "InternalError", repr(error))
            log.exception("pod %s: %s", memory.pod.full_name, what.words)

    async def _wait(self, walking: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Until a step ends, there is news, or the plan's `wait_until` has come. Returns the steps that have ended."""
        if self._awake.is_set() and not walking:
            await asyncio.sleep(0)
            return set()
        watched: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._awake.wait())}
        if not walking and not self._planning_stopped and self.memory.plan.wait_until is not None:
            pause = max(0.0, self.memory.plan.wait_until - self._deps.clock.steady())
            watched.add(asyncio.ensure_future(self._deps.clock.sleep(pause)))
        try:
            await asyncio.wait({*watched, *walking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in watched:
                one.cancel()
        return {task for task in walking if task.done()}


def _details(step: Step) -> _Details:
    """What the timeline says of the step besides its name."""
    if isinstance(step, Kill):
        return {"note": step.message, "probe": step.probe}
    return {"attempt": step.attempt} if isinstance(step, Start | RunSandbox | EnsureImage) else {}


def _interrupt(walking: dict[asyncio.Task[None], Step]) -> None:
    # Steps that wait for hooks, graces, pulls or a place among those of other pods. What creates or starts a container
    # still ends (Context.uninterrupted).
    for task, step in walking.items():
        if isinstance(step, Kill | PreStop | Start | Resize):
            task.cancel()


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None
