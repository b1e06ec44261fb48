"""What a pod's worker remembers between two plans.

Nothing here is needed for a correct plan: an agent that has just started goes on from the
runtime's records and the API's status. It only saves repeating work and events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Json, ObservedPod, Pod, ProbeState
from agent.common.model.states import BackOff, Failure, ImageState, Waiting
from agent.containers.model import PreparedPod
from agent.pods.model.facts import Facts, Termination
from agent.pods.model.steps import PodPlan
from agent.pods.work.timeline import Timeline
from agent.resources.model import Allocation, Limits, ResizeState


@dataclass(slots=True)
class PodMemory:
    """Owned by one worker; only its own tasks write here.

    `pod` has the resources that it was allocated, `desired` those that its object asks for. `sized` is the
    allocation that the pod's own cgroup was last made for, `limits` what that cgroup has. `succeeded`: the same static
    pod is to start once this one is gone. `mirror`: UID of the mirror pod that its status was last told to.
    `sandbox_prepared`: what a sandbox can be made from while the volumes are still being filled.
    `outdated`: what volumes show has changed since they were last begun to be filled.
    `in_post_start`: names of containers whose postStart hook has yet to end.
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
    prestop_ran: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    in_post_start: set[str] = field(default_factory=set)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    resize: ResizeState = field(default_factory=ResizeState)
    resize_failure: Failure | None = None
    cgroup_allocation: Allocation | None = None
    limits: Limits | None = None
    status: Json = field(default_factory=dict)
    plan: PodPlan = field(default_factory=PodPlan)

    @property
    def is_ready(self) -> bool:
        """As the newest status says, or before there is one, as the API last showed it."""
        conditions = (self.status or self.pod.status).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def facts(
        self,
        now: float,
        *,
        network_ready: bool = True,
        probes: Mapping[str, ProbeState] | None = None,
        actuated: Allocation | None = None,
    ) -> Facts:
        """The same as values, for a plan."""
        return Facts(
            now=now,
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
