"""What the parts of the agent ask of each other: the seams that tests put fakes into.

`work` talks to the world through these Protocols only. CRI configurations are plain dicts
with the field names of runtime/v1 api.proto, so that plans can build them and stay pure;
edge/cri.py turns them into messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.model.devices import NO_DEVICES, DeviceGrant
from agent.model.explain import Explanation
from agent.model.images import ImageReport
from agent.model.pods import ContainerState, ExecResult, ImageFacts, Json, Pod, ProbeState, SandboxState
from agent.model.probes import ProbeAnswer
from agent.model.pulls import Manifest, PullCredential
from agent.model.resize import Limits, MemoryUse


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """A hint that something happened to a pod: look at it afresh, never trust the event itself.

    But for `ended`, the container that it tells of as it has ended: that is for ever.
    """

    uid: str
    container_id: str
    type: str
    ended: ContainerState | None = None


class Runtime(Protocol):
    """CRI RuntimeService (edge/cri.py). Every call raises CriError (NodewrightError) with the CRI code and message."""

    async def list_sandboxes(self, uid: str | None = None) -> tuple[SandboxState, ...]: ...

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]: ...

    async def sandbox_status(self, sandbox_id: str) -> SandboxState: ...

    async def container_status(self, container_id: str) -> ContainerState: ...

    async def run_sandbox(self, config: Json, runtime_handler: str = "") -> str: ...

    async def stop_sandbox(self, sandbox_id: str) -> None: ...

    async def remove_sandbox(self, sandbox_id: str) -> None: ...

    async def create_container(self, sandbox_id: str, config: Json, sandbox_config: Json) -> str: ...

    async def start_container(self, container_id: str) -> None: ...

    async def stop_container(self, container_id: str, grace_seconds: int) -> None: ...

    async def remove_container(self, container_id: str) -> None: ...

    async def update_resources(self, container_id: str, linux: Json) -> None: ...

    async def update_sandbox(self, sandbox_id: str, overhead: Json, resources: Json) -> None: ...

    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult: ...

    async def exec_url(
        self, container_id: str, argv: list[str], *, tty: bool, stdin: bool, stdout: bool, stderr: bool
    ) -> str: ...

    async def attach_url(self, container_id: str, *, tty: bool, stdin: bool, stdout: bool, stderr: bool) -> str: ...

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str: ...

    async def reopen_log(self, container_id: str) -> None: ...

    async def checkpoint_container(self, container_id: str, path: str, timeout: int) -> None:
        """Into an archive at `path`; `timeout` in seconds, 0: the runtime's own."""
        ...

    async def sandbox_stats(self) -> list[Json]: ...

    async def status(self) -> Json: ...

    async def version(self) -> Json: ...

    def events(self) -> AsyncIterator[RuntimeEvent]: ...


class Images(Protocol):
    """CRI ImageService (edge/cri.py)."""

    async def image_status(self, reference: str) -> ImageFacts | None: ...

    async def pull_image(self, reference: str, auth: Json | None, sandbox_config: Json) -> str: ...

    async def list_images(self) -> tuple[ImageFacts, ...]: ...

    async def remove_image(self, reference: str) -> None: ...

    async def image_fs_info(self) -> list[Json]: ...


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume that stands: its path on the node, and what a mount of it must say.

    `image`: the reference of an image volume; `image_ref`: what the runtime knows it by, once it is there.
    `block`: a raw device, for volumeDevices and not for volumeMounts.
    """

    name: str
    path: str
    read_only: bool = False
    image: str = ""
    image_ref: str = ""
    block: bool = False


@dataclass(frozen=True, slots=True)
class Materials:
    """All that containers of one pod are made from, gathered before any of them starts."""

    volumes: Mapping[str, MountedVolume] = field(default_factory=dict)
    hosts_file: str = ""
    cgroup_parent: str = ""
    services: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Creation:
    """What is settled when a container is made. `ips`: its sandbox's; `image_ref`: what the runtime knows the image by.

    `target_id`: the container whose processes an ephemeral container is to see (its targetContainerName).
    `given`: what device plugins and DRA drivers grant it.
    """

    attempt: int
    ips: tuple[str, ...]
    image: ImageFacts
    image_ref: str
    target_id: str = ""
    given: DeviceGrant = NO_DEVICES


class PodMaterials(Protocol):
    """Volumes, environment, DNS, hosts file: all of a CRI configuration (work/materials/pod.py)."""

    async def prepare(self, pod: Pod) -> Materials:
        """Mount and write all that is there; idempotent. Raises Temporary/Permanent naming volume, cause and action."""
        ...

    async def sure(self, pod: Pod) -> bool:
        """Whether nothing can hinder prepare() but a token that is refused, or a disk that fails. Raises what prepare()
        would while it is not known."""
        ...

    async def sandbox_config(self, pod: Pod, materials: Materials, attempt: int) -> Json:
        """CRI PodSandboxConfig (labels: agent.labels.sandbox_labels); the same one goes to every create_container."""
        ...

    async def container_config(self, pod: Pod, container: Json, materials: Materials, creation: Creation) -> Json:
        """CRI ContainerConfig: env, mounts, resources, security. Raises Permanent as CreateContainerConfigError.

        Labels and annotations come from agent.labels.container_labels() and container_annotations(): they are
        what a restarted agent knows of the container.
        """
        ...

    def container_resources(self, pod: Pod, container: Json) -> Json:
        """CRI LinuxContainerResources of a container with these resources."""
        ...

    async def refresh(self, pod: Pod) -> None:
        """Write what has changed in ConfigMaps, Secrets, downward API and tokens into the mounted volumes."""
        ...

    async def release(self, uid: str) -> None:
        """Unmount and remove the pod's directory; idempotent. A mount that cannot be undone yet raises Temporary."""
        ...

    async def pods_on_disk(self) -> list[str]:
        """UIDs that have a directory under <root>/pods."""
        ...

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        """Credentials from imagePullSecrets that match `image`, best match first."""
        ...


class Probes(Protocol):
    """Liveness, readiness and startup probes (work/probes.py). `on_change(uid)` is called when an answer changes."""

    def ensure(self, pod: Pod, running: Mapping[str, ContainerState], ips: tuple[str, ...]) -> None:
        """Probe these running containers (by name) and no others of this pod."""
        ...

    def recall(self, uid: str, shown: Pod) -> None:
        """What the API shows of the pod's containers holds where no probe has answered yet."""
        ...

    def states(self, uid: str) -> Mapping[str, ProbeState]:
        """By container id; a container without probes is started and ready as soon as it runs (not listed here)."""
        ...

    def findings(self, uid: str) -> tuple[ProbeAnswer, ...]:
        """The newest answer of each probe of running containers, for people."""
        ...

    async def first_round(self) -> None:
        """Until each probe of a container that was there before the agent has been tried, a second at most."""
        ...

    def forget(self, uid: str) -> None: ...


class PodCgroups(Protocol):
    """The kubepods tree (edge/cgroups.py), v1 and v2, cgroupfs and systemd drivers."""

    async def ensure_pod(self, pod: Pod, *, keep: bool = False) -> str:
        """Make or update the pod's cgroup; returns the CRI cgroup_parent. `keep`: one that is there stays as is."""
        ...

    def wanted(self, pod: Pod) -> Limits:
        """What the pod's cgroup is to have for the resources that the pod states."""
        ...

    async def limits(self, pod: Pod) -> Limits | None:
        """What the pod's cgroup has; None: pods have none of their own here."""
        ...

    async def set_limits(self, pod: Pod, limits: Limits) -> None:
        """Write all of them."""
        ...

    async def memory_use(self, pod: Pod, container_ids: Iterable[str]) -> MemoryUse:
        """Bytes in use by the pod's cgroup and by these containers'."""
        ...

    async def remove_pod(self, uid: str) -> None:
        """Kill what is left in it and remove it; idempotent."""
        ...

    async def pod_uids(self) -> frozenset[str]:
        """UIDs that have a cgroup."""
        ...


class Checkpoints(Protocol):
    """Small files that survive the agent (edge/checkpoint.py). Every call raises Temporary naming the file."""

    async def read(self, name: str) -> str | None: ...

    async def write(self, name: str, text: str) -> None: ...

    async def set_aside(self, name: str) -> str: ...


class RecordFiles(Protocol):
    """A folder of small files (edge/checkpoint.py). Every call raises Temporary naming the file."""

    async def read(self, name: str) -> str | None: ...

    async def write(self, name: str, text: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def names(self) -> list[str]: ...


class Events(Protocol):
    """Kubernetes Events about pods and the node, aggregated as upstream's recorder does (work/events.py)."""

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """`kind`: Normal or Warning; `about`: a Pod's raw object or an ObjectReference. Never blocks, never raises."""
        ...


class ApiPods(Protocol):
    """The pods of this node in the API (edge/api_pods.py). Every call raises ApiError or ApiUnreachable."""

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        """Strategic merge patch of the status; the pod as it is then. A pod of another UID is a conflict (409)."""
        ...

    async def delete(self, pod: Pod) -> None:
        """Let go of a pod that has ended: grace 0, UID as precondition. Gone already is fine."""
        ...

    async def runtime_handler(self, class_name: str) -> str:
        """The handler of a RuntimeClass. Raises ApiError (404) when there is none of that name."""
        ...


class HookHttp(Protocol):
    """The HTTP side of lifecycle hooks (edge/hook_http.py)."""

    async def get(self, url: str, headers: Mapping[str, str]) -> None:
        """Send it; any answer is a success. Raises Temporary when there is none."""
        ...


class ImageContent(Protocol):
    """What the runtime's store holds and writes of images (edge/image_content.py). Calls raise PluginError, with the
    code UNIMPLEMENTED when the runtime cannot tell."""

    async def under_way(self) -> Mapping[str, int]:
        """Blobs that are being written: digest -> bytes so far."""
        ...

    async def manifests(self, host: str, repository: str) -> tuple[Manifest, ...]:
        """Those of images that came from there."""
        ...

    async def sizes(self, manifest: str) -> Mapping[str, int]:
        """Digest -> bytes of everything that the manifest names."""
        ...

    async def present(self, digests: Collection[str]) -> frozenset[str]:
        """Those of them that are there whole."""
        ...

    async def close(self) -> None: ...


class Files(Protocol):
    """The few files of a pod that the pipeline itself reads and writes (edge/pod_files.py)."""

    async def termination_message(self, container: ContainerState) -> str:
        """What the ended container left as its last words (file, or end of the log as its policy says)."""
        ...

    async def container_started(self, pod: Pod, name: str, container_id: str, log_path: str) -> None:
        """Link the log under /var/log/containers, as log collectors expect it."""
        ...

    async def remove_container_logs(self, container: ContainerState) -> None: ...

    async def remove_pod_logs(self, pod: Pod) -> None:
        """Remove the pod's log directory and the links to it; idempotent."""
        ...

    async def logged_pods(self) -> frozenset[str]:
        """UIDs of all pods that have a log directory."""
        ...

    async def remove_left_logs(self, uid: str) -> None:
        """remove_pod_logs() for a pod of which only the UID is known."""
        ...


class PodView(Protocol):
    """What the server and the node status may ask of the pod table (work/pod_table.py)."""

    def pods(self) -> list[Pod]: ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def status(self, uid: str) -> Json:
        """The newest status the agent has computed, sent or not."""
        ...

    def observed(self, uid: str) -> Any:
        """ObservedPod, newest; an empty one when nothing is known."""
        ...


class Explains(Protocol):
    """Why pods are as they are, from the node's own record (work/explain.py)."""

    async def pod(self, namespace: str, name: str) -> Explanation | None:
        """None: this node has no such pod."""
        ...

    async def all(self) -> list[Explanation]: ...


class ImageReports(Protocol):
    """What holds the node's images (work/image_gc.py)."""

    async def report(self) -> ImageReport:
        """Raises NodewrightError."""
        ...


Notify = Callable[[str], None]
