"""The steps of a pod plan, and the plan itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Json, Kind
from agent.common.model.states import Waiting
from agent.probes.model import ProbeKind
from agent.resources.model import Allocation, ContainerResize


@dataclass(frozen=True, slots=True)
class Prepare:
    """Devices, claims, cgroup and volumes of the pod.

    `may_defer_volumes`: volumes whose sources are all there may be left to the next Prepare, which runs beside
    RunSandbox.
    """

    may_defer_volumes: bool = False


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

    `created_id`: the container, if an earlier agent has created it; `replaces_id`: the container that an earlier agent
    created for this attempt and that can never be started.
    """

    kind: Kind
    container: Json
    attempt: int
    sandbox_id: str
    created_id: str = ""
    replaces_id: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """preStop hook, SIGTERM, and after what is left of `grace` seconds SIGKILL. `probe`: the one that failed."""

    container_id: str
    name: str
    message: str
    grace: int
    hook: Json | None = None
    restart: bool = False
    probe: ProbeKind | None = None


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
class ConfirmDeletion:
    """The last status is with the API server: let the object go."""


@dataclass(frozen=True, slots=True)
class RemovePod:
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
    | ConfirmDeletion
    | RemovePod
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
