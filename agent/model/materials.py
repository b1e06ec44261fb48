"""Facts and plan values of what containers are made from: volumes, files, mounts, paths on the node.

Shared by the plans that decide them, the edges that carry them out, and work/materials/ between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.model.csi import CsiVolume
from nodelib.errors import NodewrightError

Json = dict[str, Any]

CONFIG_MAP = "configmaps"
SECRET = "secrets"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What this node is, as far as container configurations depend on it.

    `allocatable` holds Kubernetes quantities as Node.status.allocatable shows them; `uid` is that of the Node object,
    "" before it is known.
    """

    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    thermal_throttle_paths: tuple[str, ...] = ()
    recursive_read_only_handlers: frozenset[str] = frozenset()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class MaterialSettings:
    """The part of the KubeletConfiguration that shapes pods."""

    node_name: str
    root_dir: str = "/var/lib/kubelet"
    pod_logs_dir: str = "/var/log/pods"
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    resolv_conf: str = "/etc/resolv.conf"
    hosts_file: str = "/etc/hosts"
    seccomp_default: bool = True

    @property
    def seccomp_profile_root(self) -> str:
        return f"{self.root_dir}/seccomp"


@dataclass(frozen=True, slots=True)
class PodPaths:
    """Where a pod's things lie under the root directory, as upstream lays them out (pkg/kubelet/kubelet_getters.go)."""

    root_dir: str
    uid: str

    @property
    def pod(self) -> str:
        return f"{self.root_dir}/pods/{self.uid}"

    @property
    def volumes(self) -> str:
        return f"{self.pod}/volumes"

    @property
    def plugins(self) -> str:
        return f"{self.pod}/plugins"

    @property
    def sub_paths(self) -> str:
        return f"{self.pod}/volume-subpaths"

    @property
    def etc_hosts(self) -> str:
        return f"{self.pod}/etc-hosts"

    def volume(self, plugin: str, name: str) -> str:
        """`plugin` with its "~": kubernetes.io~configmap."""
        return f"{self.volumes}/{plugin}/{name}"

    def container(self, name: str) -> str:
        return f"{self.pod}/containers/{name}"

    def sub_path(self, volume: str, container: str, index: int) -> str:
        return f"{self.sub_paths}/{volume}/{container}/{index}"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A ConfigMap or Secret (kind: the plural of its path) in the pod's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TokenNeed:
    """A bound service account token: one TokenRequest. `expiration` in seconds."""

    audience: str
    expiration: int


@dataclass(frozen=True, slots=True)
class TrustNeed:
    """Trust anchors by the name of one ClusterTrustBundle, or by signer and label selector (as canonical JSON)."""

    name: str = ""
    signer: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class CertificateNeed:
    """A podCertificate source: where it stands in the pod, and what it asks for. `lifetime` in seconds, 0: not said."""

    volume: str
    index: int
    signer: str
    key_type: str
    lifetime: int = 0
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """A private key (PKCS #8) and its certificate chain, leaf first; both PEM. The key never shows in a log."""

    key: bytes = field(repr=False)
    chain: bytes


@dataclass(frozen=True, slots=True)
class Gathered:
    """All outside things that volumes of a pod are made from. An object that does not exist is None.

    A certificate that cannot be had is the reason why: only the volume that shows it is held up by that.
    """

    objects: Mapping[ObjectRef, Json | None] = field(default_factory=dict)
    tokens: Mapping[TokenNeed, str] = field(default_factory=dict)
    bundles: Mapping[TrustNeed, bytes | None] = field(default_factory=dict)
    claims: Mapping[str, Json] = field(default_factory=dict)
    certificates: Mapping[CertificateNeed, Credential | NodewrightError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileProjection:
    """One file of an atomic volume. `uid` None: root owns it."""

    data: bytes
    mode: int
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """A directory of the pod's own. `medium`: "" disk, "Memory", "HugePages[-SIZE]". `size` in bytes, 0: no limit."""

    name: str
    medium: str = ""
    size: int = 0
    fs_group: int | None = None
    page_size: int = 0


@dataclass(frozen=True, slots=True)
class AtomicVolume:
    """Files that change together: configMap, secret, downwardAPI, projected."""

    name: str
    plugin: str
    files: Mapping[str, FileProjection]
    in_memory: bool
    size: int = 0
    fs_group: int | None = None
    nested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path of the node, used where it is. `type` as in the API, "" for no check; `block`: a raw block device."""

    name: str
    path: str
    type: str = ""
    read_only: bool = False
    fs_group: int | None = None
    fs_group_policy: str = "Always"
    block: bool = False


@dataclass(frozen=True, slots=True)
class ImageVolume:
    """An OCI image that the runtime mounts."""

    name: str
    reference: str
    pull_policy: str = "IfNotPresent"


DiskVolume = EmptyDir | AtomicVolume | HostPath | ImageVolume
VolumePlan = DiskVolume | CsiVolume


@dataclass(frozen=True, slots=True)
class SubPath:
    """A path inside a volume that a container mounts alone; resolved without ever leaving the volume."""

    volume: str
    path: str
    index: int


@dataclass(frozen=True, slots=True)
class MountPlan:
    """One volumeMount of a container, decided; `host_path` is "" while a `sub_path` must be resolved."""

    name: str
    container_path: str
    host_path: str = ""
    sub_path: SubPath | None = None
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: str = "PROPAGATION_PRIVATE"
    image: str = ""
    image_ref: str = ""
    image_sub_path: str = ""
