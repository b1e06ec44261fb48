"""Desired pods, and what the container runtime shows of them: the values that all rooms share.

Everything here is frozen. `Pod` wraps the API object as it came (decoded JSON, never changed in place); the rest
mirrors what CRI reports (k8s.io/cri-api runtime/v1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from nodelib.json_values import Json

Value = TypeVar("Value")
UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,127}")


def is_uid(text: str) -> bool:
    """Whether this can be a pod's UID, and so a part of a path; runtimes and cgroups may show anything."""
    return UID.fullmatch(text) is not None


class Kind(Enum):
    """Which list of the pod spec a container comes from."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Pod:
    """A desired pod and where it was read: "api", "file" or "http"."""

    raw: Json
    source: str = "api"
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: Hashable, work: Callable[[], Value]) -> Value:
        """What `work` makes of the pod, the first time. For what is asked of all pods of a node for each one that
        comes or goes: a pod may have tens of thousands of containers.
        """
        if key not in self._known:
            self._known[key] = work()
        return self._known[key]  # type: ignore[no-any-return] # the key says what it is

    @property
    def meta(self) -> Json:
        return self.raw["metadata"]  # type: ignore[no-any-return]

    @property
    def spec(self) -> Json:
        return self.raw["spec"]  # type: ignore[no-any-return]

    @property
    def status(self) -> Json:
        """The status as the API last showed it."""
        return self.raw.get("status") or {}

    @property
    def uid(self) -> str:
        return str(self.meta["uid"])

    @property
    def namespace(self) -> str:
        return str(self.meta.get("namespace", "default"))

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_deleted(self) -> bool:
        """Its deletion was requested; the object stays until its finalizers and its node are done."""
        return bool(self.meta.get("deletionTimestamp"))

    @property
    def host_network(self) -> bool:
        return bool(self.spec.get("hostNetwork"))

    @property
    def priority(self) -> int:
        """spec.priority, 0 where it is not set."""
        return int(self.spec.get("priority") or 0)

    @property
    def restart_policy(self) -> str:
        return str(self.spec.get("restartPolicy", "Always"))

    def containers(self, *kinds: Kind) -> Iterator[tuple[Kind, Json]]:
        """(kind, container) of these kinds, all by default, in the order of the spec."""
        for kind in kinds or (Kind.INIT, Kind.MAIN, Kind.EPHEMERAL):
            for container in self.spec.get(kind.value) or []:
                yield kind, container

    def container(self, name: str) -> tuple[Kind, Json] | None:
        return self.once("containers by name", self._by_name).get(name)

    def _by_name(self) -> dict[str, tuple[Kind, Json]]:
        found: dict[str, tuple[Kind, Json]] = {}
        for kind, container in self.containers():
            found.setdefault(container["name"], (kind, container))
        return found


class RunState(Enum):
    """CRI ContainerState."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SandboxState:
    """One CRI pod sandbox. Times in nanoseconds since the epoch."""

    id: str
    uid: str
    namespace: str
    name: str
    attempt: int
    ready: bool
    created_at: int
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    network_mode: str = "POD"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One CRI container (one attempt). Times in nanoseconds since the epoch, 0: not yet.

    `cut`: it is created and cannot be started any more: its start was cut off before any process of it ran.
    `runtime`: the name that the runtime gives itself in CRI's Version.
    """

    id: str
    sandbox_id: str
    uid: str
    name: str
    attempt: int
    state: RunState
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_ref: str = ""
    image_id: str = ""
    log_path: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Json, ...] = ()
    resources: Json = field(default_factory=dict)
    user: Json = field(default_factory=dict)
    stop_signal: str = ""
    cut: bool = False
    runtime: str = "containerd"

    @property
    def full_id(self) -> str:
        """The id as a pod's status has it (ContainerID.String in pkg/kubelet/container/runtime.go)."""
        return f"{self.runtime}://{self.id}"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """Everything that the runtime has of one pod UID, newest sandbox and newest attempts first.

    A pod may have thousands of containers, of each of which a plan asks several times: they are looked up.
    """

    uid: str
    sandboxes: tuple[SandboxState, ...] = ()
    containers: tuple[ContainerState, ...] = ()
    _by_name: dict[str, list[ContainerState]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _by_id: dict[str, ContainerState] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for one in self.containers:
            self._by_name.setdefault(one.name, []).append(one)
            self._by_id.setdefault(one.id, one)

    @property
    def sandbox(self) -> SandboxState | None:
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def names(self) -> KeysView[str]:
        """Of the containers that the runtime has."""
        return self._by_name.keys()

    def attempts(self, name: str) -> Sequence[ContainerState]:
        """Those of the container called `name`, the newest first."""
        return self._by_name.get(name, ())

    def latest(self, name: str) -> ContainerState | None:
        """The newest attempt of the container called `name`."""
        return next(iter(self.attempts(name)), None)

    def container(self, container_id: str) -> ContainerState | None:
        return self._by_id.get(container_id)

    def sandbox_called(self, sandbox_id: str) -> SandboxState | None:
        return next((found for found in self.sandboxes if found.id == sandbox_id), None)

    def runs(self, container_id: str) -> bool:
        found = self.container(container_id)
        return found is not None and found.state is RunState.RUNNING

    @property
    def is_running(self) -> bool:
        """Any of its containers runs."""
        return any(found.state is RunState.RUNNING for found in self.containers)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """CRI Image: its names, its size and the user that it is to run as."""

    id: str
    repo_tags: tuple[str, ...] = ()
    repo_digests: tuple[str, ...] = ()
    size: int = 0
    uid: int | None = None
    username: str = ""
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command that ran in a container."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    def head(self, most: int) -> bytes:
        """The first bytes of both streams together: the whole may be 16 MiB, which nobody should copy."""
        found = self.stdout[:most]
        return found + self.stderr[: most - len(found)]


@dataclass(frozen=True, slots=True)
class ProbeState:
    """What the probes found out about one container."""

    started: bool
    ready: bool
    live: bool = True
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodStage:
    """How far a pod is, as upstream's metrics label it: `lifecycle` is sync, terminating or terminated, `config` is
    desired, orphan or runtime_only, `static` is "", true or unknown. `active`: its requests count at admission."""

    lifecycle: str
    config: str
    static: str
    active: bool = False
    mirrored: bool = False
