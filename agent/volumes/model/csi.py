"""CSI: drivers on this node, volumes of pods that they serve, and the records of them on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# csi.v1 NodeServiceCapability.RPC.Type
STAGE, STATS, EXPAND, MULTI_WRITER, MOUNT_GROUP = 1, 2, 3, 5, 6


@dataclass(frozen=True, slots=True)
class SecretRef:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CsiVolume:
    """A volume of a pod that a CSI driver serves; `name` is that of the pod's volume.

    `spec_name` names its directory (the PersistentVolume, or the volume itself when `ephemeral`), `handle` is the
    driver's own id of it. `size` in bytes, of the PersistentVolume, 0: not specified. `claim` is the claim's name,
    `claim_size` the bytes that its status says it has.
    `context`: the SELinux context that it is mounted with, "" for none.
    """

    name: str
    spec_name: str
    driver: str
    handle: str
    ephemeral: bool = False
    read_only: bool = False
    block: bool = False
    fs_type: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    publish_secret: SecretRef | None = None
    stage_secret: SecretRef | None = None
    expand_secret: SecretRef | None = None
    fs_group: int | None = None
    fs_group_policy: str = "Always"
    claim: str = ""
    claim_size: int = 0
    size: int = 0
    context: str = ""

    @property
    def key(self) -> VolumeKey:
        return VolumeKey(self.driver, self.handle)


@dataclass(frozen=True, slots=True, order=True)
class VolumeKey:
    """Identifies a volume: its driver, and the driver's id of it."""

    driver: str
    handle: str

    @property
    def unique_name(self) -> str:
        """As Node.status.volumesInUse and volumesAttached name it."""
        return f"kubernetes.io/csi/{self.driver}^{self.handle}"


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """A registered driver, from NodeGetInfo and NodeGetCapabilities. `max_volumes` 0: not specified."""

    name: str
    endpoint: str
    node_id: str = ""
    max_volumes: int = 0
    topology: Mapping[str, str] = field(default_factory=dict)
    capabilities: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class DueUpdate:
    """When a driver is asked again how many volumes the node can have. Monotonic seconds."""

    period: float
    at: float


@dataclass(frozen=True, slots=True)
class Published:
    """A pod's volume as vol_data.json records it; `target` is the path that the driver was given.

    `context`: the SELinux context that it was mounted with, "" for none.
    """

    key: VolumeKey
    spec_name: str
    target: str
    ephemeral: bool
    block: bool = False
    context: str = ""


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged volume as vol_data.json records it; `context` as in Published."""

    key: VolumeKey
    path: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class CsiSecrets:
    """The decoded Secrets that a volume refers to. repr() leaves them out."""

    publish: Mapping[str, str] = field(default_factory=dict, repr=False)
    stage: Mapping[str, str] = field(default_factory=dict, repr=False)
