"""What the materials of pods need of the world: the API's objects, certificates, the node's disk, CSI drivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pod_settings import NodeContext, PodPaths
from agent.common.model.pods import Json, Pod
from agent.resources.plan import cgroups
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.sources import CertificateNeed, Credential, ObjectRef, TokenNeed
from agent.volumes.model.volumes import DiskVolume, MountedVolume


class Objects(Protocol):
    """The API objects that pods refer to (volumes/work/pod_objects.py)."""

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None: ...

    async def token(self, pod: Pod, need: TokenNeed) -> str: ...

    async def trust_bundles(self, pod: Pod) -> Sequence[Json]:
        """All ClusterTrustBundles; the pod hears of changes from now on."""
        ...

    async def claim(self, pod: Pod, name: str) -> Json | None:
        """The PersistentVolume that the claim is bound to; None while it is not."""
        ...

    async def services(self) -> Sequence[Json]:
        """All Services. Raises Temporary until they have been read once."""
        ...

    def forget(self, uid: str) -> None: ...


class Certificates(Protocol):
    """Certificates of pods (volumes/work/pod_certificates.py)."""

    async def get(self, pod: Pod, need: CertificateNeed) -> Credential: ...

    def forget(self, uid: str) -> None: ...


class Disk(Protocol):
    """The pod's directory on the node (volumes/edge/pod_disk.py). Blocking: called through asyncio.to_thread."""

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]: ...

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]: ...

    def bind_sub_path(self, volume: str, path: str, target: str) -> str: ...

    def read_inside(self, volume: str, path: str) -> str | None: ...

    def read_text(self, path: str) -> str: ...

    def write_text(self, path: str, text: str, mode: int) -> None: ...

    def make_directory(self, path: str, mode: int) -> None: ...

    def tear_down(self, paths: PodPaths) -> None: ...

    def pods(self) -> list[str]: ...


class Csi(Protocol):
    """Volumes that CSI drivers serve (volumes/work/csi.py)."""

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]: ...

    async def release(self, paths: PodPaths) -> None: ...


Warn = Callable[[Pod, str, str], None]


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """What decides the limits of a pod's cgroups here. `unthrottled(pod)`: it has CPUs for itself."""

    policy: cgroups.Policy
    machine: cgroups.Machine
    unthrottled: Callable[[Pod], bool] = lambda pod: False


@dataclass(frozen=True, slots=True)
class VolumeEdges:
    """What the work needs of the world. `warn(pod, reason, message)` emits a Warning event."""

    objects: Objects
    certificates: Certificates
    disk: Disk
    csi: Csi
    node: Callable[[], NodeContext]
    warn: Warn
    cgroups: CgroupFacts
