"""The steps of a pod plan, and the plan itself. Each step is done by one function of work/steps/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Kind
from agent.common.model.states import Waiting
from agent.probes.model import ProbeKind
from agent.resources.model import Allocation, ContainerResize
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class Prepare:
    """Devices, claims, cgroup and volumes of the pod.

    `may_defer_volumes`: volumes whose sources are all there may be left to the next Prepare, which runs beside
    RunSandbox.
    """

    may_defer_volumes: bool = False


@dataclass(frozen=True, slots=True)
class EnsureImage:
    """Look for the image, and pull it if the policy says so. The step does not wait for the pull.

    It is the container's own image, or with `volume` (an entry of spec.volumes) that of an image volume it mounts.
    """

    kind: Kind
    container: Json
    attempt: int
    volume: Json | None = None


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Create and start the sandbox; `replaces`: it takes the place of an earlier one."""

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
    """Run the preStop hook, send SIGTERM, and SIGKILL after what is left of `grace` (seconds).

    `message`: for the event; `restart`: it is started again afterwards; `probe`: the probe that failed.
    """

    container_id: str
    name: str
    message: str
    grace: int
    hook: Json | None = None
    restart: bool = False
    probe: ProbeKind | None = None


@dataclass(frozen=True, slots=True)
class PreStop:
    """Run the preStop hook of a container that is killed in a later plan, for at most `grace` seconds."""

    container_id: str
    name: str
    grace: int
    hook: Json


@dataclass(frozen=True, slots=True)
class Resize:
    """Update the pod's cgroup and these running containers until the `wanted` allocation is in force."""

    containers: tuple[ContainerResize, ...]
    wanted: Allocation


@dataclass(frozen=True, slots=True)
class StopSandbox:
    """Stop the sandbox and tear down its network."""

    sandbox_id: str


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Remove the record of an ended container from the runtime, and its logs.

    `restarts`: its end restarts all containers of the pod, which counts for the back-off of the next such end.
    """

    container_id: str
    keep_logs: bool = False
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    """Remove the record of a stopped sandbox from the runtime."""

    sandbox_id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give back what Prepare took: volumes, the pod's directory, claims, cgroup, exclusive CPUs and memory."""


@dataclass(frozen=True, slots=True)
class ConfirmDeletion:
    """Once the API server has the last status, delete the object with a grace of 0."""


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Remove the pod's logs, the last that is left of it; then its worker ends."""


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
    """Steps that are done now, all at once; when they have ended, the pod is planned afresh.

    No steps: nothing can be done before `wait_until` (steady seconds; None: before something changes).
    `reason` says in a sentence what the pod is waiting for, `waiting` the same by container name.
    `terminal`: no container runs or will run again. `finished`: only records in the runtime and the API are left.
    """

    steps: tuple[Step, ...] = ()
    wait_until: float | None = None
    reason: str = ""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    terminal: bool = False
    finished: bool = False
