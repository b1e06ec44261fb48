"""What a pod's worker and its steps ask of the world. Tests put interpreting fakes here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from agent.common.model.pods import ContainerState, Pod, ProbeState
from agent.containers.model import ContainerInputs, PreparedPod
from agent.probes.model import ProbeAnswer
from agent.resources.model import Limits, MemoryUse
from agent.volumes.model.volumes import MountedVolume
from nodelib.json_values import Json


class PodVolumes(Protocol):
    """The volumes of pods (volumes/work/manager.py)."""

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        """Make the pod's directory and mount all its volumes; by name. Idempotent.

        Raises Temporary or Permanent naming the volume, the cause and what to do.
        """
        ...

    async def sources_ready(self, pod: Pod) -> bool:
        """Whether the API has all that mount() needs: then only a refused token or a failing disk can make it fail.

        Raises what mount() would raise while the API server does not answer.
        """
        ...

    async def refresh(self, pod: Pod) -> None:
        """Write changed ConfigMaps, Secrets, downward API fields and tokens into the mounted volumes."""
        ...

    async def release(self, uid: str) -> None:
        """Unmount and remove the pod's directory; idempotent. Raises Temporary when a mount is still in use."""
        ...

    async def pods_on_disk(self) -> list[str]:
        """UIDs that have a directory under <root>/pods."""
        ...


class ContainerConfigs(Protocol):
    """CRI configurations: environment, DNS, mounts, hosts file, limits (containers/work/configs.py)."""

    async def services(self, pod: Pod) -> tuple[Json, ...]:
        """All Services, for the environment of the pod's containers.

        Raises Temporary until they have been read once; for a static pod there are none until then.
        """
        ...

    async def sandbox_config(self, pod: Pod, prepared: PreparedPod, attempt: int) -> Json:
        """CRI PodSandboxConfig; the same one goes to every create_container.

        Its labels come from sandbox_labels() in agent/common/model/labels.py.
        """
        ...

    async def container_config(self, pod: Pod, container: Json, prepared: PreparedPod, inputs: ContainerInputs) -> Json:
        """CRI ContainerConfig: env, mounts, resources, security. An error becomes a CreateContainerConfigError.

        Labels and annotations come from container_labels() and container_annotations() in agent/common/model/labels.py:
        a restarted agent knows of the container only what they say.
        """
        ...

    def container_resources(self, pod: Pod, container: Json) -> Json:
        """CRI LinuxContainerResources for the resources of `container`."""
        ...


class Probes(Protocol):
    """Liveness, readiness and startup probes (probes/work.py). `on_change(uid)` is called when an answer changes."""

    def ensure(self, pod: Pod, running: Mapping[str, ContainerState], ips: tuple[str, ...]) -> None:
        """Probe these running containers (by name) and no others of this pod."""
        ...

    def restore(self, uid: str, shown: Pod) -> None:
        """Where no probe has answered yet, take the results from the status that the API shows."""
        ...

    def states(self, uid: str) -> Mapping[str, ProbeState]:
        """By container id; a container without probes is started and ready as soon as it runs (not listed here)."""
        ...

    def findings(self, uid: str) -> tuple[ProbeAnswer, ...]:
        """The newest answer of each probe of running containers, for explanations."""
        ...

    async def first_round(self) -> None:
        """Wait until each container that ran before the agent has been probed once, a second at most."""
        ...

    def remove(self, uid: str) -> None: ...


class PodCgroups(Protocol):
    """The kubepods tree (resources/work/cgroups.py), v1 and v2, cgroupfs and systemd drivers."""

    async def ensure_pod(self, pod: Pod, *, keep: bool = False) -> str:
        """Make or update the pod's cgroup; returns the CRI cgroup_parent. `keep`: leave an existing one as it is."""
        ...

    def wanted(self, pod: Pod) -> Limits:
        """The limits that the pod's cgroup should have for the pod's resources."""
        ...

    async def limits(self, pod: Pod) -> Limits | None:
        """The limits that the pod's cgroup has; None: pods have no cgroups of their own on this node."""
        ...

    async def set_limits(self, pod: Pod, limits: Limits) -> None:
        """Write all of them."""
        ...

    async def memory_use(self, pod: Pod, container_ids: Iterable[str]) -> MemoryUse:
        """Bytes in use by the pod's cgroup and by these containers'."""
        ...

    async def end_container(self, uid: str, container_id: str) -> None:
        """Kill all processes of the container, without the limit of its CPU."""
        ...

    async def remove_pod(self, uid: str) -> None:
        """Kill the processes left in the cgroup and remove it; idempotent."""
        ...

    async def pod_uids(self) -> frozenset[str]:
        """UIDs of the pods that have a cgroup."""
        ...


class ApiPods(Protocol):
    """The pods of this node in the API (pods/edge/api_pods.py). Every call raises ApiError or ApiUnreachable."""

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        """Patch the status (strategic merge); returns the patched pod. A pod of another UID is a conflict (409)."""
        ...

    async def delete(self, pod: Pod) -> None:
        """Delete the object of a terminated pod: grace 0, its UID as precondition. Succeeds if it is gone already."""
        ...

    async def runtime_handler(self, class_name: str) -> str:
        """The handler of a RuntimeClass. Raises ApiError (404) when there is none of that name."""
        ...


class HttpGet(Protocol):
    """The HTTP side of lifecycle hooks (pods/edge/hook_http.py)."""

    async def get(self, url: str, headers: Mapping[str, str], *, pod: str = "") -> None:
        """Send a GET for a pod, by UID; any answer is a success, and so is a redirect to another host, which is not
        followed. Raises Temporary if there is none."""
        ...
