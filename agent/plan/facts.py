"""What plans are made from besides the pod and the runtime's view of it, and what they are made of.

All values: a plan is `plan(desired, observed, facts)`, so that every decision can be told
and tested from its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.model.pods import ImageFacts, Json, Kind, ProbeState
from agent.model.resize import Allocation, ContainerResize


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not running: the reason and message of its waiting state."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed, and when (wall seconds) it is worth another try.

    `since`: the first time for this reason; `action`: what a user can do about it.
    """

    reason: str
    message: str
    retry_at: float
    times: int = 1
    since: float = 0.0
    action: str = ""


@dataclass(frozen=True, slots=True)
class BackOff:
    """One restart or pull back-off: how long (seconds), and when it was last extended (wall seconds)."""

    delay: float
    updated_at: float


class ImagePhase(Enum):
    PULLING = "pulling"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ImageState:
    """How far the image of one attempt of one container is."""

    attempt: int
    phase: ImagePhase
    ref: str = ""
    facts: ImageFacts | None = None
    waiting: Waiting | None = None
    retry_at: float = 0.0


class Cause(Enum):
    """Why a pod is brought down for good."""

    DELETED = "deleted"  # its object asks for it
    REMOVED = "removed"  # its object is gone, or it never had one here
    FINISHED = "finished"  # every container that counts has ended
    REJECTED = "rejected"  # the node did not take it
    DEADLINE = "deadline"  # activeDeadlineSeconds
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class Ending:
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
    """The agent's own knowledge of one pod at `now` (wall seconds).

    `shed`: no record of an ended pod is to stay in the runtime; `actuated`: the resources that are in force; `sized`:
    those that the pod's own cgroup was last made for. `founded`: what a sandbox needs is there, and nothing can hinder
    the volumes but a token that is refused. `succeeded`: the same static pod is to start again once this one
    is gone.
    """

    now: float
    prepared: bool = False
    founded: bool = False
    released: bool = False
    confirmed: bool = False
    shed: bool = False
    network_ready: bool = True
    ending: Ending | None = None
    blocked: Failure | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    images: Mapping[str, ImageState] = field(default_factory=dict)
    backoff: Mapping[str, BackOff] = field(default_factory=dict)
    probes: Mapping[str, ProbeState] = field(default_factory=dict)
    stopped_sandboxes: frozenset[str] = frozenset()
    restart_wanted: frozenset[str] = frozenset()
    actuated: Allocation | None = None
    sized: Allocation | None = None
    resize_failure: Failure | None = None
    succeeded: bool = False
    hooked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Prepare:
    """Volumes, hosts file, cgroup. `may_leave`: volumes that are sure to come may be left to the next Prepare, which is
    walked beside the sandbox."""

    may_leave: bool = False


@dataclass(frozen=True, slots=True)
class EnsureImage:
    """Look for the image, and pull it if the policy says so; the pull goes on beside other steps.

    The container's own, or with `volume` (an entry of spec.volumes) that of an image volume which it mounts.
    """

    kind: Kind
    container: Json
    attempt: int
    volume: Json | None = None


@dataclass(frozen=True, slots=True)
class RunSandbox:
    attempt: int
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Create and start one attempt of a container, then its postStart hook.

    `made`: its id, if it is there already; `instead_of`: the same attempt made before, which cannot be started.
    """

    kind: Kind
    container: Json
    attempt: int
    sandbox_id: str
    made: str = ""
    instead_of: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """preStop hook, SIGTERM, and after what is left of `grace` seconds SIGKILL."""

    container_id: str
    name: str
    message: str
    grace: int
    hook: Json | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class PreStop:
    """The preStop hook of a container whose turn to be killed is yet to come; it gets `grace` seconds at most."""

    container_id: str
    name: str
    grace: int
    hook: Json


@dataclass(frozen=True, slots=True)
class Resize:
    """Update the pod's cgroup and these running containers, so that what is `wanted` is in force."""

    containers: tuple[ContainerResize, ...]
    wanted: Allocation


@dataclass(frozen=True, slots=True)
class StopSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    container_id: str
    keep_logs: bool = False


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Unmount the volumes, remove the pod's directory and cgroup."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """The last status is with the API server: let the object go."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing of the pod is left but its logs."""


Step = (
    Prepare
    | EnsureImage
    | RunSandbox
    | Start
    | Kill
    | PreStop
    | Resize
    | StopSandbox
    | RemoveContainer
    | RemoveSandbox
    | Release
    | Confirm
    | Forget
)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Steps that may be walked side by side, now; then the pod is planned afresh.

    No steps: nothing can be done before `wait_until` (wall seconds, None: before something happens).
    `reason` is the one sentence that says what the pod is waiting for; `waiting` the same by container.
    `terminal`: no container runs or will run again. `finished`: nothing of it is held any more but its records.
    """

    steps: tuple[Step, ...] = ()
    wait_until: float | None = None
    reason: str = ""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    terminal: bool = False
    finished: bool = False
