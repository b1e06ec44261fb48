"""What plans are made from besides the pod and the runtime's view of it, and what they are made of.

All values: a plan is `plan(desired, observed, facts)`, so that every decision can be told
and tested from its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.common.model.pods import ProbeState
from agent.common.model.states import BackOff, Failure, ImageState
from agent.resources.model import Allocation


class Cause(Enum):
    """Why a pod is brought down for good."""

    DELETED = "deleted"  # its object asks for it
    REMOVED = "removed"  # its object is gone, or it never had one here
    FINISHED = "finished"  # every container that counts has ended
    REJECTED = "rejected"  # the node did not take it
    DEADLINE = "deadline"  # activeDeadlineSeconds
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class Termination:
    """A pod on its way out: never undone, and its grace (seconds) only ever shrinks.

    `disrupted`: the node's own trouble is to blame, which the condition DisruptionTarget says.
    """

    cause: Cause
    since: float
    grace: int
    reason: str = ""
    message: str = ""
    disrupted: bool = False

    @property
    def fails(self) -> bool:
        """The node makes the pod fail."""
        return self.cause in (Cause.REJECTED, Cause.DEADLINE, Cause.EVICTED)

    def fails_as(self, phase: str) -> bool:
        """Whether the pod fails by it, `phase` being what its containers say: one that has done its work when the node
        sends it away has succeeded all the same (SyncTerminatingPod's last generateAPIPodStatus)."""
        return self.fails and not (self.cause is Cause.EVICTED and phase == "Succeeded")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the agent itself knows of one pod at `now` (wall seconds).

    `sandbox_prepared`: all that a sandbox needs exists, and only a refused token could still hold up the volumes.
    `drop_records`: an ended pod leaves no records in the runtime. `prestop_ran`: containers whose preStop hook has run.
    `actuated`: the resources in force; `sized`: those that the pod's own cgroup was last made for.
    `succeeded`: a static pod of the same name starts again once this one is gone.
    """

    now: float
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
