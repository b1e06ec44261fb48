"""Protocols of what the volume manager and the CSI code need: API objects, certificates, disks, drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.volumes.model.csi import CsiVolume, DriverFacts, Published, SecretRef, Staged
from agent.volumes.model.sources import CertificateProjection, Credential, FoundClaim, ObjectRef, TokenRequest
from agent.volumes.model.volumes import DiskVolume, MountedVolume
from nodelib.json_values import Json


class VolumeObjects(Protocol):
    """The API objects that pods refer to (volumes/work/pod_objects.py)."""

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None: ...

    async def token(self, pod: Pod, request: TokenRequest) -> str: ...

    async def trust_bundles(self, pod: Pod) -> Sequence[Json]:
        """All ClusterTrustBundles; the pod is notified of changes from now on."""
        ...

    async def claim(self, pod: Pod, name: str) -> FoundClaim | None:
        """The claim with its PersistentVolume; None if there is no such claim."""
        ...

    def drop_pod(self, uid: str) -> None:
        """Stop watching objects and renewing tokens for this pod."""
        ...


class PodCertificates(Protocol):
    """Certificates of pods (volumes/work/pod_certificates.py)."""

    async def get(self, pod: Pod, source: CertificateProjection) -> Credential: ...

    def drop_pod(self, uid: str) -> None:
        """Stop renewing certificates for this pod."""
        ...


class VolumeDisk(Protocol):
    """The volumes in pods' directories (volumes/edge/pod_disk.py). Blocking: call it in a thread. Raises OSError."""

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]: ...

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]: ...

    def reserve(self, paths: PodPaths, volume: str) -> str:
        """Note until tear_down() that the pod has this PersistentVolume to itself.

        The UID of the pod that has it already, else "".
        """
        ...

    def tear_down(self, paths: PodPaths) -> None: ...

    def pods(self) -> list[str]: ...


class CsiMounter(Protocol):
    """Volumes that CSI drivers mount (volumes/work/csi_volumes.py)."""

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]: ...

    async def release(self, paths: PodPaths) -> None: ...


class PodCertificateApi(Protocol):
    """PodCertificateRequests of this node (volumes/edge/pod_certificates.py)."""

    def follow(self, on_change: Callable[[str, str, bool], None]) -> None: ...

    async def key(self, kind: str) -> tuple[bytes, bytes]: ...

    async def account_uid(self, namespace: str, name: str) -> str: ...

    async def create(self, request: Json) -> str: ...

    def find(self, namespace: str, name: str) -> Json | None: ...


class CsiVolumeApi(Protocol):
    """The volumes' part of volumes/work/csi_objects.py. Every call raises ApiError or Temporary."""

    async def driver(self, name: str) -> Json | None: ...

    async def attachment(self, name: str) -> Json | None: ...

    async def secret(self, ref: SecretRef) -> Mapping[str, str]: ...

    async def token(self, pod: Pod, request: TokenRequest) -> Json: ...

    def drop_pod(self, uid: str) -> None: ...


class CsiClaimApi(Protocol):
    """The claims' part of volumes/work/csi_objects.py. Every call raises ApiError or Temporary."""

    async def claim(self, namespace: str, name: str) -> Json | None: ...

    async def volume(self, name: str) -> Json | None: ...

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None: ...

    async def secret(self, ref: SecretRef) -> dict[str, str]: ...


class CsiNodeApi(Protocol):
    """The node's part of volumes/work/csi_objects.py. Every call raises ApiError."""

    async def node(self) -> Json: ...

    async def patch_node(self, patch: Json) -> None: ...

    async def csi_node(self) -> Json | None: ...

    async def write_csi_node(self, wanted: Json) -> None: ...


class CsiDisk(Protocol):
    """CSI directories and vol_data.json files (volumes/edge/csi_disk.py). Blocking; raises OSError."""

    def save(self, folder: str, data: Mapping[str, str]) -> None: ...

    def make(self, path: str) -> None: ...

    def is_mounted(self, path: str) -> bool: ...

    def apply_fs_group(self, path: str, group: int, policy: str) -> None: ...

    def published(self, paths: PodPaths) -> list[Published]: ...

    def all_published(self) -> dict[str, list[Published]]: ...

    def all_staged(self) -> list[Staged]: ...

    def unbind_sub_paths(self, paths: PodPaths) -> None: ...

    def remove(self, folder: str, mount: str) -> None: ...


class CsiDriver(Protocol):
    """A driver's node service (volumes/edge/csi_driver.py). Every call raises PluginError."""

    async def facts(self) -> DriverFacts: ...

    async def stage(self, request: Json) -> None: ...

    async def unstage(self, handle: str, path: str) -> None: ...

    async def publish(self, request: Json) -> None: ...

    async def unpublish(self, handle: str, target: str) -> None: ...

    async def expand(self, request: Json) -> int: ...

    async def usage(self, handle: str, path: str) -> list[Json]: ...

    async def close(self) -> None: ...
