"""What the agent itself knows of a pod: with the pod and the runtime's view of it, the input of plan_pod().

All of it are values, so that every decision can be explained and tested from its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.common.model.pods import ContainerState, ProbeState
from agent.common.model.states import BackOff, Failure, ImageState
from agent.resources.model import Allocation


class Cause(Enum):
    """Why a pod is terminated."""

    DELETED = "deleted"  # its object has a deletionTimestamp
    REMOVED = "removed"  # its object is gone, or was never known here
    FINISHED = "finished"  # all its containers have ended and none is restarted
    REJECTED = "rejected"  # not admitted
    DEADLINE = "deadline"  # activeDeadlineSeconds is over
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class Termination:
    """Why and since when (steady seconds) a pod is terminated. Never undone, and its grace (seconds) only ever shrinks.

    `disrupted`: the node ends the pod to help itself, which the condition DisruptionTarget says.
    """

    cause: Cause
    since: float
    grace: int
    reason: str = ""
    message: str = ""
    disrupted: bool = False

    @property
    def fails(self) -> bool:
        """Whether the node makes the pod fail."""
        return self.cause in (Cause.REJECTED, Cause.DEADLINE, Cause.EVICTED)

    def fails_as(self, phase: str) -> bool:
        """Whether the pod ends as Failed, given the `phase` by its containers.

        An evicted pod whose containers have all succeeded has still succeeded (generateAPIPodStatus, as
        SyncTerminatingPod calls it last).
        """
        return self.fails and not (self.cause is Cause.EVICTED and phase == "Succeeded")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the agent itself knows of one pod at `now` (steady seconds, see nodelib/clock.py).

    - `ahead`: how far the wall clock is ahead of `now`; only for times that are shown.
    - `started`: when the pod started; `ended`: by container id, when it was seen that it ended. Both in steady seconds.
    - `prepared`: Prepare is done; `sandbox_prepared`: all of it but the volumes, which only a refused token could still
      fail. `released`: Release is done. `confirmed`: the API server has been asked to delete the object.
    - `blocked`: the last step that failed for the whole pod; `failures`: by container.
    - `images`: by image key; `backoff`: by backoff_key() of plan/restart_backoff.py; `probes`: by container id.
    - `stopped_sandboxes`: ids of sandboxes that this agent has stopped; `restart_wanted`: of containers that it killed
      to start them again; `prestop_ran`: of containers whose preStop hook has run or runs.
    - `actuated`: the resources in force in the containers; `cgroup_allocation`: those in force in the pod's cgroup.
    - `drop_records`: the node needs room, so a terminated pod keeps no containers in the runtime.
    - `has_successor`: a static pod of the same UID starts again once this one is gone.
    """

    now: float
    ahead: float = 0.0
    started: float | None = None
    ended: Mapping[str, float] = field(default_factory=dict)
    prepared: bool = False
    sandbox_prepared: bool = False
    released: bool = False
    confirmed: bool = False
    drop_records: bool = False
    network_ready: bool = True
    termination: Termination | None = None
    blocked: Failure | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    images: Mapping[str, ImageState] = field(default_factory=dict)
    backoff: Mapping[str, BackOff] = field(default_factory=dict)
    probes: Mapping[str, ProbeState] = field(default_factory=dict)
    stopped_sandboxes: frozenset[str] = frozenset()
    restart_wanted: frozenset[str] = frozenset()
    actuated: Allocation | None = None
    cgroup_allocation: Allocation | None = None
    resize_failure: Failure | None = None
    has_successor: bool = False
    prestop_ran: frozenset[str] = frozenset()

    def shown(self, at: float) -> float:
        """A steady time as a time of the wall clock, as it is set now."""
        return at + self.ahead

    @property
    def wall(self) -> float:
        """The time to show for what happens now."""
        return self.now + self.ahead

    def ended_at(self, one: ContainerState) -> float:
        """When a container ended (steady seconds)."""
        return self.ended.get(one.id, one.finished_at / 1e9)
