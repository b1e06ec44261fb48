"""Runs all probes of all pods from one queue of due times (Probes of agent/pods/ports.py).

A task exists only while an attempt is running. `on_change(uid)` is called when an answer changes something that the
pod's status or plan depends on, never for an answer that repeats the last one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agent.common.metrics import Metrics
from agent.common.model.pods import ContainerState, Pod, ProbeState
from agent.common.ports import Events, Notify
from agent.common.work.handshakes import of_namespace
from agent.probes import plan
from agent.probes.due_times import DueTimes
from agent.probes.model import Key, Outcome, ProbeAnswer, ProbeGates, ProbeKind, ProbeRequest, Verdict
from agent.probes.places import Places
from agent.probes.plan import Spec, Track
from nodelib.clock import Clock, at_most, since
from nodelib.errors import Invalid
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_ATTEMPTS_ON_ERROR = 3
_FIRST_ROUND = 1.0  # seconds
_RESULT_LABELS = {Verdict.SUCCESS: "successful", Verdict.WARNING: "successful", Verdict.FAILURE: "failed"}


class Io(Protocol):
    """One attempt of a probe (probes/edge.py ProbeIo)."""

    async def run(self, request: ProbeRequest, container_id: str, timeout: float, *, pod: str = "") -> Outcome: ...


@dataclass(slots=True)
class _Watched:
    """One running container and its probes. `started_at` is on the monotonic clock."""

    container: Json
    state: ContainerState
    started_at: float
    restarted: bool
    specs: dict[ProbeKind, Spec]
    tracks: dict[ProbeKind, Track]
    answers: dict[ProbeKind, ProbeAnswer] = field(default_factory=dict)
    commands: dict[ProbeKind, ProbeRequest | Outcome] = field(default_factory=dict)

    def request(self, spec: Spec, ip: str, gates: ProbeGates | None) -> ProbeRequest | Outcome:
        """Or why there is none. A command that takes long to be put together, or cannot be, is so only once."""
        if (known := self.commands.get(spec.kind)) is not None:
            return known
        try:
            found: ProbeRequest | Outcome = plan.request_of(spec, self.container, ip, gates)
        except Invalid as error:
            found = Outcome(Verdict.ERROR, error.message)
        if plan.is_kept(spec, found):
            self.commands[spec.kind] = found
        return found


@dataclass(slots=True)
class _PodProbes:
    pod: Pod
    ip: str
    watched: dict[str, _Watched] = field(default_factory=dict)
    fatal: dict[str, ProbeAnswer] = field(default_factory=dict)  # by container name: the answer that ended it


class ProbeManager:
    """Probes the running containers of all pods (upstream's prober.Manager) while run() runs.

    Due times are monotonic, so a change of the wall clock moves no probe.
    """

    def __init__(
        self,
        io: Io,
        events: Events,
        on_change: Notify,
        clock: Clock,
        metrics: Metrics,
        places: Places,
        gates: ProbeGates | None = None,
    ) -> None:
        self._places, self._gates = places, gates
        self._io, self._events, self._on_change, self._clock, self._metrics = io, events, on_change, clock, metrics
        self._measured: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
        self._agent_started = clock.steady()
        self._pods: dict[str, _PodProbes] = {}
        self._due = DueTimes(clock)
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._untried: set[Key] = set()  # of containers that ran before the agent and are not probed yet
        self._all_tried = asyncio.Event()
        self._all_tried.set()
        self._is_stopped = False

    def ensure(self, pod: Pod, running: Mapping[str, ContainerState], ips: tuple[str, ...]) -> None:
        """Probe exactly these running containers (by name) of this pod."""
        kept = self._pods.get(pod.uid)
        if kept is None:
            kept = self._pods[pod.uid] = _PodProbes(pod, "")
        kept.pod, kept.ip = pod, ips[0] if ips else ""
        wanted = {state.id: (name, state) for name, state in running.items()}
        for container_id in set(kept.watched) - set(wanted):
            self._drop(pod.uid, container_id)
        for container_id, (name, state) in wanted.items():
            if container_id not in kept.watched:
                self._add(kept, name, state)
        if pod.is_deleted:
            self._stop_liveness_and_startup(kept)
        if not kept.watched and not kept.fatal:
            del self._pods[pod.uid]

    def restore(self, uid: str, shown: Pod) -> None:
        """Take over the container statuses in `shown` where no probe has answered yet.

        A static pod is probed before its mirror pod, which has the earlier status, is known.
        """
        kept = self._pods.get(uid)
        known = dict(plan.known_statuses(shown))
        for container_id, watched in kept.watched.items() if kept else ():
            for kind, spec in watched.specs.items():
                if kind not in watched.answers:
                    watched.tracks[kind] = plan.initial(spec, known.get(container_id))
            self._schedule_wanted(uid, watched)

    def states(self, uid: str) -> Mapping[str, ProbeState]:
        """Probe state by container id, without containers that have no probes."""
        kept = self._pods.get(uid)
        return {one: plan.state(watched.tracks) for one, watched in kept.watched.items()} if kept else {}

    def findings(self, uid: str) -> tuple[ProbeAnswer, ...]:
        """The newest answer of each probe, and those that ended a container, for people to read."""
        kept = self._pods.get(uid)
        watched_now = {watched.container["name"] for watched in kept.watched.values()} if kept else set()
        fatal = kept.fatal.items() if kept else ()
        return (*(answer for name, answer in fatal if name not in watched_now), *self._answers(kept))

    def _answers(self, kept: _PodProbes | None) -> tuple[ProbeAnswer, ...]:
        return tuple(
            watched.answers.get(kind)
            or plan.unanswered(spec, watched.container["name"], watched.state.started_at / 1e9)
            for watched in (kept.watched.values() if kept else ())
            for kind, spec in watched.specs.items()
        )

    async def first_round(self) -> None:
        """Wait until each probe of a container that ran before the agent was tried once, for at most a second."""
        await at_most(self._clock, _FIRST_ROUND, self._all_tried)

    def remove(self, uid: str) -> None:
        kept = self._pods.get(uid)
        for container_id in list(kept.watched) if kept else []:
            self._drop(uid, container_id)
        self._pods.pop(uid, None)
        self._metrics.prober_probe.remove_by_labels({"pod_uid": uid})
        names = Metrics.prober_probe_duration.labels
        for labels in self._measured.pop(uid, ()):
            self._metrics.prober_probe_duration.remove_by_labels(dict(zip(names, labels, strict=True)))

    async def run(self) -> None:
        """Until cancelled; running attempts are cancelled too."""
        try:
            while not self._is_stopped:
                self._start_due()
                await self._due.wait()
            await asyncio.Event().wait()
        finally:
            self.stop()

    def stop(self) -> None:
        """Cut running attempts off and begin no other: what they need ends now."""
        self._is_stopped = True
        for task in list(self._running.values()):
            task.cancel()

    def _add(self, kept: _PodProbes, name: str, state: ContainerState) -> None:
        found = kept.pod.container(name)
        specs = {spec.kind: spec for spec in plan.specs(found[1])} if found else {}
        if not found or not specs:
            return
        started_at = since(self._clock, state.started_at / 1e9)
        age = self._clock.steady() - started_at
        known = kept.pod.once("known statuses", lambda: dict(plan.known_statuses(kept.pod))).get(state.id)
        tracks = {kind: plan.initial(spec, known) for kind, spec in specs.items()}
        before = plan.was_before(started_at, self._agent_started)
        watched = _Watched(found[1], state, self._clock.monotonic() - age, before, specs, tracks)
        kept.watched[state.id] = watched
        self._schedule_wanted(kept.pod.uid, watched)

    def _schedule_wanted(self, uid: str, watched: _Watched) -> None:
        """Schedule each probe that has to run and is not scheduled yet."""
        started = plan.state(watched.tracks).started
        for kind, spec in watched.specs.items():
            key = (uid, watched.state.id, kind)
            if key in self._due or key in self._running or not plan.wanted(spec, watched.tracks[kind], started):
                continue
            now, jitter = self._clock.monotonic(), random.random()
            due = plan.first_due(spec, watched.started_at, now, restarted=watched.restarted, jitter=jitter)
            self._due.schedule(key, due)
            if watched.restarted and not watched.tracks[kind].tries:
                self._untried.add(key)
                self._all_tried.clear()

    def _tried(self, key: Key) -> None:
        self._untried.discard(key)
        if not self._untried:
            self._all_tried.set()

    def _stop_liveness_and_startup(self, kept: _PodProbes) -> None:
        for container_id, watched in kept.watched.items():
            for kind, spec in watched.specs.items():
                fresh = plan.stop_liveness_and_startup(watched.tracks[kind], spec)
                if fresh != watched.tracks[kind]:
                    watched.tracks[kind] = fresh
                    self._unschedule((kept.pod.uid, container_id, kind))
            self._schedule_wanted(kept.pod.uid, watched)

    def _drop(self, uid: str, container_id: str) -> None:
        for kind in ProbeKind:
            self._unschedule((uid, container_id, kind))
        self._pods[uid].watched.pop(container_id, None)

    def _unschedule(self, key: Key) -> None:
        self._due.unschedule(key)
        self._tried(key)
        task = self._running.pop(key, None)
        if task is not None:
            task.cancel()

    def _start_due(self) -> None:
        for key in self._due.take():
            task = asyncio.create_task(self._attempt(key), name=f"probe {key[2].value} {key[1][:12]}")
            self._running[key] = task
            task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("probe %s failed unexpectedly", key, exc_info=task.exception())
            self._due.schedule(key, self._clock.monotonic() + 10.0)

    async def _attempt(self, key: Key) -> None:
        uid, container_id, kind = key
        kept = self._pods[uid]
        watched = kept.watched[container_id]
        spec, began = watched.specs[kind], self._clock.monotonic()
        before = plan.state(watched.tracks)
        outcome = await self._send(kept, watched, spec)
        self._tried(key)
        name, now, took = watched.container["name"], self._clock.now(), self._clock.monotonic() - began
        watched.answers[kind] = plan.answered(watched.answers.get(kind), spec, name, outcome, now, took)
        counted = watched.restarted or plan.is_counted(spec, watched.started_at, began)
        track = watched.tracks[kind]
        if plan.is_reported(spec, track, counted):
            self._report(kept.pod, watched.container, kind, outcome)
        if outcome.verdict is not Verdict.ERROR:
            success = outcome.verdict is not Verdict.FAILURE
            track = plan.record(track, spec, success, counted=counted)
            watched.tracks[kind] = track
        self._count(kept.pod, watched.container, kind, outcome, took)
        self._running.pop(key, None)
        after = plan.state(watched.tracks)
        if plan.wanted(spec, track, after.started):
            later = plan.lag(spec, track, restarted=watched.restarted, jitter=random.random())
            due = plan.next_due(spec, track, watched.started_at, began, self._clock.monotonic())
            self._due.schedule(key, due + later)
        if before.live and not after.live:
            kept.fatal[name] = watched.answers[kind]
        if after != before:
            self._schedule_wanted(uid, watched)
            self._on_change(uid)

    async def _send(self, kept: _PodProbes, watched: _Watched, spec: Spec) -> Outcome:
        """Send the request. An attempt that could not be made is repeated up to three times, as upstream does."""
        outcome = Outcome(Verdict.ERROR)
        for _ in range(_ATTEMPTS_ON_ERROR):
            request = watched.request(spec, kept.ip, self._gates)
            if isinstance(request, Outcome):
                return request
            async with self._places.place(request, kept.pod):
                with of_namespace(kept.pod.namespace):
                    outcome = await self._io.run(request, watched.state.id, spec.timeout, pod=kept.pod.uid)
            if outcome.verdict is not Verdict.ERROR:
                break
        return outcome

    def _report(self, pod: Pod, container: Json, kind: ProbeKind, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.SUCCESS:
            return
        if outcome.verdict is Verdict.WARNING:
            reason, message = "ProbeWarning", f"{kind.value} probe warning: {outcome.output}"
        elif outcome.verdict is Verdict.FAILURE:
            reason, message = "Unhealthy", f"{kind.value} probe failed: {outcome.output}"
        else:
            reason = "Unhealthy"
            message = f"{kind.value} probe errored and resulted in unknown state: {outcome.output}"
        self._events.emit(pod.raw, "Warning", reason, message, container=container["name"])

    def _count(self, pod: Pod, container: Json, kind: ProbeKind, outcome: Outcome, seconds: float) -> None:
        result = _RESULT_LABELS.get(outcome.verdict, "unknown")
        labels = (kind.value, container["name"], pod.name, pod.namespace)
        self._measured[pod.uid].add(labels)
        self._metrics.prober_probe.labels(kind.value, result, *labels[1:], pod.uid).inc()
        if outcome.verdict is not Verdict.FAILURE:
            self._metrics.prober_probe_duration.labels(*labels).observe(seconds)
