"""Volumes as plan/volumes.py decides them, and as they are once mounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.local import LocalVolume


@dataclass(frozen=True, slots=True)
class FileProjection:
    """One file of an atomic volume. `uid` None: root owns it."""

    data: bytes = field(repr=False)
    mode: int
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """A directory of the pod. `medium`: "" (disk), "Memory" or "HugePages"; `size` in bytes, 0: no limit.

    `page_size` in bytes, for huge pages only. `mode`: of the directory; None: everybody may write.
    """

    name: str
    medium: str = ""
    size: int = 0
    fs_group: int | None = None
    page_size: int = 0
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class AtomicVolume:
    """Files that change together: configMap, secret, downwardAPI, projected. `nested`: mount points inside of it."""

    name: str
    plugin: str
    files: Mapping[str, FileProjection]
    in_memory: bool
    size: int = 0
    fs_group: int | None = None
    nested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path of the node, used where it is. `type` as in the API, "" for no check; `block`: a raw block device.

    `relabels`: see MountedVolume.
    """

    name: str
    path: str
    type: str = ""
    read_only: bool = False
    fs_group: int | None = None
    fs_group_policy: str = "Always"
    block: bool = False
    relabels: bool = False


@dataclass(frozen=True, slots=True)
class ImageVolume:
    """An OCI image that the runtime mounts."""

    name: str
    reference: str
    pull_policy: str = "IfNotPresent"


DiskVolume = EmptyDir | AtomicVolume | HostPath | ImageVolume
VolumePlan = DiskVolume | CsiVolume | LocalVolume


@dataclass(frozen=True, slots=True)
class SubPath:
    """A path inside a volume that a container mounts; `index`: of the volumeMount."""

    volume: str
    path: str
    index: int


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A mounted volume: its path on the node, and what a container's mount of it needs.

    `image`: the reference of an image volume; `image_ref`: the runtime's name of it, once it has been pulled.
    `block`: a raw device, for volumeDevices and not for volumeMounts. `relabels`: where SELinux is enabled, the runtime
    gives its files the context of the container that mounts it. `began` (wall seconds) and `took` (seconds): when
    it was mounted, 0 if that is not known.
    """

    name: str
    path: str
    read_only: bool = False
    image: str = ""
    image_ref: str = ""
    block: bool = False
    relabels: bool = False
    began: float = field(default=0.0, compare=False)
    took: float = field(default=0.0, compare=False)
