"""What pods get from the configuration and the node, and where their files are. Paths are upstream's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from agent.common.model.binding import config, flag, gate
from agent.common.model.file_names import is_file_name
from nodelib.errors import Invalid


@dataclass(frozen=True, slots=True)
class VolumeGates:
    """Fields of volumes that a kubelet reads only with a feature gate.

    `file_users`: owners of files (defaultUser, user); `directory_modes`: the mode of an emptyDir.
    """

    file_users: Annotated[bool, gate("AtomicWriteVolumeUserFields")] = False
    directory_modes: Annotated[bool, gate("EmptyDirVolumeMode")] = False


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The part of this node that container configurations depend on.

    `allocatable`: quantities as in Node.status.allocatable; `uid`: the Node object's, "" before it is known;
    `…_handlers`: those of the runtime that can do it; `selinux`: it is enabled.
    """

    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    thermal_throttle_paths: tuple[str, ...] = ()
    recursive_read_only_handlers: frozenset[str] = frozenset()
    user_namespace_handlers: frozenset[str] = frozenset()
    uid: str = ""
    selinux: bool = False
    volumes: VolumeGates = VolumeGates()


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """The part of the KubeletConfiguration that shapes pods."""

    node_name: Annotated[str, flag("hostname-override")]
    root_dir: Annotated[str, flag("root-dir")] = "/var/lib/kubelet"
    pod_logs_dir: Annotated[str, config("podLogsDir")] = "/var/log/pods"
    cluster_dns: Annotated[tuple[str, ...], config("clusterDNS", convert=tuple)] = ()
    cluster_domain: Annotated[str, config("clusterDomain")] = "cluster.local"
    resolv_conf: Annotated[str, config("resolvConf")] = "/etc/resolv.conf"
    sysctls: Annotated[Mapping[str, str], config("defaultPodSysctls")] = field(default_factory=dict)
    hosts_file: str = "/etc/hosts"
    seccomp_default: Annotated[bool, config("seccompDefault")] = True

    @property
    def seccomp_profile_root(self) -> str:
        return f"{self.root_dir}/seccomp"


@dataclass(frozen=True, slots=True)
class PodPaths:
    """A pod's folders under the root directory, as upstream lays them out (pkg/kubelet/kubelet_getters.go).

    Raises Invalid for a UID that names another folder: these trees are removed with the pod, and a UID may come from a
    runtime's labels or a cgroup's name.
    """

    root_dir: str
    uid: str

    def __post_init__(self) -> None:
        if not is_file_name(self.uid):
            raise Invalid(
                f"{self.uid!r} is not a UID of a pod",
                step="find its folder",
                action="Remove the sandbox or cgroup that has it by hand (crictl rmp, rmdir): nothing else here does.",
            )

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
    def sole_volumes(self) -> str:
        """A file for each PersistentVolume that the pod has to itself (ReadWriteOncePod), named after it."""
        return f"{self.plugins}/sole-volumes"

    @property
    def sub_paths(self) -> str:
        return f"{self.pod}/volume-subpaths"

    @property
    def etc_hosts(self) -> str:
        return f"{self.pod}/etc-hosts"

    def volume(self, plugin: str, name: str) -> str:
        """`plugin` with its "~", such as kubernetes.io~configmap."""
        return f"{self.volumes}/{plugin}/{name}"

    @property
    def containers(self) -> str:
        return f"{self.pod}/containers"

    def container(self, name: str) -> str:
        return f"{self.containers}/{name}"

    def sub_path(self, volume: str, container: str, index: int) -> str:
        return f"{self.sub_paths}/{volume}/{container}/{index}"
