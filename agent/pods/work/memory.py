"""What a pod's worker remembers between two plans.

None of it is needed for a correct plan: a restarted agent goes on from the runtime's records and the API's status. It
only saves repeated work and events.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from agent.common.model.pods import Kind, ObservedPod, Pod, ProbeState
from agent.common.model.states import BackOff, Failure, ImageState, Waiting
from agent.containers.model import PreparedPod
from agent.pods.model.facts import Facts, Termination
from agent.pods.model.steps import PodPlan
from agent.pods.plan.restart_backoff import SANDBOX, backoff_key
from agent.pods.work.timeline import Timeline
from agent.resources.model import Allocation, Limits, ResizeState
from nodelib.clock import Clock, since
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339

_KEPT = 100  # entries beside those of what is there


@dataclass(slots=True)
class PodMemory:
    """Only the worker and its steps write here. Fields that Facts (model/facts.py) has too are explained there.

    - `pod` has its allocated resources, `desired` those that its object asks for; `gone`: the object is gone.
    - `seen`: the runtime's view; `status`: computed last; `mirror_uid`: of the mirror pod that shows it.
    - `prepared`: what containers are made from; `sandbox_prepared`: what a sandbox can be made from before that, while
      volumes are still being mounted. `volumes_changed`: their sources have changed since mounting began.
    - `cgroup_allocation`: in force in the pod's cgroup; `limits`: what that cgroup has.
    - `started`, `ended`: see Facts; noted when they are first seen, so that setting the clock moves no deadline.
    - `ready_since`: when the pod became ready (monotonic), until the API shows it.
    - `own_users_untried`: the newest sandbox has users of its own, and nothing has failed in it.
    - `stopping`: ids of containers whose Killing event is out; `in_post_start`: names of containers whose postStart
      hook has not ended.
    """

    pod: Pod
    desired: Pod
    timeline: Timeline
    gone: bool = False
    has_successor: bool = False
    mirror_uid: str = ""
    seen: ObservedPod = field(default_factory=lambda: ObservedPod(""))
    prepared: PreparedPod | None = None
    sandbox_prepared: PreparedPod | None = None
    volumes_changed: bool = False
    released: bool = False
    confirmed: bool = False
    drop_records: bool = False
    termination: Termination | None = None
    blocked: Failure | None = None
    failures: dict[str, Failure] = field(default_factory=dict)
    images: dict[str, ImageState] = field(default_factory=dict)
    backoff: dict[str, BackOff] = field(default_factory=dict)
    stopped_sandboxes: set[str] = field(default_factory=set)
    restart_wanted: set[str] = field(default_factory=set)
    own_users_untried: bool = False
    prestop_ran: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    in_post_start: set[str] = field(default_factory=set)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    resize: ResizeState = field(default_factory=ResizeState)
    resize_failure: Failure | None = None
    cgroup_allocation: Allocation | None = None
    limits: Limits | None = None
    started: float | None = None
    ready_since: float | None = None
    ended: dict[str, float] = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    plan: PodPlan = field(default_factory=PodPlan)

    def note_start(self, clock: Clock) -> None:
        """Remember when the pod started, once its status says so: no step of the wall clock moves its deadline."""
        shown = self.status.get("startTime") or self.pod.status.get("startTime")
        if self.started is None and shown:
            with suppress(TypeError, ValueError):
                self.started = since(clock, parse_rfc3339(shown))

    def forget_old(self) -> None:
        """Drop what is known of containers, sandboxes and definitions that are gone, once that is most of it.

        A container that is resized or changed again and again gets a new id and a new back-off each time, and all of
        this is copied for each plan.
        """
        pod = self.pod
        there = max(len(self.seen.containers), sum(len(pod.spec.get(kind.value) or ()) for kind in Kind))
        most = _KEPT + 2 * there
        if max(map(len, (self.prestop_ran, self.stopping, self.restart_wanted, self.backoff))) > most:
            ids = {one.id for one in self.seen.containers}
            for kept in (self.prestop_ran, self.stopping, self.restart_wanted):
                kept &= ids
            keys = {SANDBOX, *(backoff_key(one) for _, one in pod.containers())}
            self.backoff = {key: one for key, one in self.backoff.items() if key in keys}
        if len(self.stopped_sandboxes) > _KEPT + 2 * len(self.seen.sandboxes):
            self.stopped_sandboxes &= {one.id for one in self.seen.sandboxes}

    @property
    def is_ready(self) -> bool:
        """By the newest computed status; before there is one, by the status in the API."""
        conditions = (self.status or self.pod.status).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def facts(
        self,
        clock: Clock,
        *,
        network_ready: bool = True,
        probes: Mapping[str, ProbeState] | None = None,
        actuated: Allocation | None = None,
    ) -> Facts:
        """A frozen copy for a plan."""
        now = clock.steady()
        return Facts(
            now=now,
            ahead=clock.now() - now,
            started=self.started,
            ended=dict(self.ended),
            prepared=self.prepared is not None,
            sandbox_prepared=self.sandbox_prepared is not None,
            released=self.released,
            confirmed=self.confirmed,
            drop_records=self.drop_records,
            network_ready=network_ready,
            termination=self.termination,
            blocked=self.blocked,
            failures=dict(self.failures),
            images=dict(self.images),
            backoff=dict(self.backoff),
            probes=probes or {},
            stopped_sandboxes=frozenset(self.stopped_sandboxes),
            restart_wanted=frozenset(self.restart_wanted),
            actuated=actuated,
            cgroup_allocation=self.cgroup_allocation,
            resize_failure=self.resize_failure,
            has_successor=self.has_successor,
            prestop_ran=frozenset(self.prestop_ran),
        )
