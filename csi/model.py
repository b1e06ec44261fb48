"""Facts about volumes and snapshots. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

DRIVER = "csi.nodewright.local"
TOPOLOGY = f"topology.{DRIVER}/node"
EPHEMERAL = "csi.storage.k8s.io/ephemeral"
"""In the volume context of an inline volume: "true" (CSIDriver with podInfoOnMount)."""


class Mode(StrEnum):
    """How a volume is used: with a file system, or as a device."""

    MOUNT = "mount"
    BLOCK = "block"


class Kind(StrEnum):
    """The folders of the driver; a volume of a pod's own has another id than one that was provisioned."""

    VOLUME = "volumes"
    SNAPSHOT = "snapshots"


@dataclass(frozen=True, slots=True)
class Image:
    """A volume or a snapshot, as its record has it.

    `source`: the id of what it was copied from; of a snapshot, of its volume. `created`: Unix seconds.
    """

    id: str
    name: str
    size: int
    mode: Mode
    fs_type: str
    source: str
    created: int


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """What CreateVolume asks for. Sizes in bytes, 0: not said."""

    id: str
    name: str
    required: int
    limit: int
    mode: Mode
    fs_type: str
    source: str  # id of a snapshot or a volume, or ""
    source_kind: Kind
    namespace: str = ""  # of the claim


@dataclass(frozen=True, slots=True)
class Access:
    """How a volume shall be staged or published."""

    mode: Mode
    fs_type: str
    flags: int
    data: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of the file system with the images: its size, what is free, and what images occupy alone."""

    total: int
    free: int
    occupied: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a mounted file system, in bytes and inodes."""

    total: int
    available: int
    used: int
    inodes: int
    inodes_free: int
