"""What the agent was told, as frozen Settings: one dataclass per concern. `agent/config/parse.py` makes them.

What is here is obeyed; a field that is not has its `instead` in agent/config/schema.py and no place here. All times are
seconds, all sizes bytes. `notices` are the lines that the agent logs at its start: what was asked for and is not done,
and what happens instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.logs.model import LogSettings
from agent.managers.model.cpus import Cpus
from agent.managers.plan.options import CpuOptions, TopologyOptions
from agent.server.model import ServerSettings

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who this node is. `name` is the host's name in lower case unless --hostname-override is given.

    `pod_cidr`: for an agent without an API server; else the Node object has it.
    """

    name: str
    ips: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    register: bool = True
    provider_id: str = ""
    controller_attach_detach: bool = True
    pod_cidr: str = ""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How to reach the API server: by `bootstrap` while `kubeconfig` is not there or its certificate has expired."""

    kubeconfig: str = ""
    bootstrap: str = ""
    rotate: bool = False


@dataclass(frozen=True, slots=True)
class PathSettings:
    root_dir: str = "/var/lib/kubelet"
    cert_dir: str = "/var/lib/kubelet/pki"
    pod_logs_dir: str = "/var/log/pods"
    container_logs_dir: str = "/var/log/containers"


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The CRI endpoint as a socket path."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """Node status and Lease."""

    update_frequency: float
    report_frequency: float
    lease_duration: int
    max_images: int


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """`root` is "/" unless given; reservations are quantities as text; thresholds too, or percentages.

    `runtime_cgroup`: where the container runtime itself is, "" if nobody said."""

    root: str
    driver: str
    per_qos: bool
    fail_v1: bool
    cpu_cfs_quota: bool
    cpu_cfs_period: float
    pod_pids_limit: int
    single_process_oom_kill: bool | None
    swap_behavior: str
    kube_reserved: Mapping[str, str]
    system_reserved: Mapping[str, str]
    kube_reserved_cgroup: str
    system_reserved_cgroup: str
    enforce: frozenset[str]
    runtime_cgroup: str = ""


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Thresholds and reclaims as quantities or percentages; `max_grace` in whole seconds."""

    hard: Mapping[str, str]
    soft: Mapping[str, str]
    soft_grace: Mapping[str, float]
    minimum_reclaim: Mapping[str, str]
    pressure_transition_period: float
    max_grace: int
    local_storage: bool


@dataclass(frozen=True, slots=True)
class ShutdownSettings:
    """What pods have when the machine goes; `by_priority`: (priority, whole seconds)."""

    whole: float
    critical: float
    by_priority: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What holds for every pod."""

    max_pods: int
    pods_per_core: int
    seccomp_default: bool
    allowed_unsafe_sysctls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Where static pods are read, "" for nowhere, and how often. Times in seconds."""

    path: str
    url: str
    url_headers: Mapping[str, tuple[str, ...]] = field(repr=False)
    file_frequency: float
    url_frequency: float


@dataclass(frozen=True, slots=True)
class DnsSettings:
    cluster_dns: tuple[str, ...]
    cluster_domain: str
    resolv_conf: str


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """`parallel_pulls` 0: no limit. Thresholds of the collection in percent."""

    parallel_pulls: int
    gc_high: int
    gc_low: int
    gc_min_age: float
    gc_max_age: float
    verify: str
    providers_config: str
    providers_dir: str
    allowlist: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The agent's own process and its demands on the machine."""

    verbosity: int
    oom_score_adj: int
    max_open_files: int
    fail_swap_on: bool
    lock_file: str = ""
    exit_on_lock_contention: bool = False


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """`static_cpus`: cpuManagerPolicy is static; `reserve`: CPUs kept back in all, `reserved_cpus`: which, if told.

    `reserved_memory`: NUMA node, and bytes by kind.
    """

    static_cpus: bool = False
    cpu_options: CpuOptions = field(default_factory=CpuOptions)
    reconcile_period: float = 10.0
    reserve: float = 0.0
    reserved_cpus: Cpus = frozenset()
    static_memory: bool = False
    reserved_memory: tuple[tuple[int, Mapping[str, int]], ...] = ()
    topology: str = "none"
    scope: str = "container"
    topology_options: TopologyOptions = field(default_factory=TopologyOptions)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the agent was told. `effective`: the whole KubeletConfiguration, for /configz; `flags`: for /flagz."""

    node: NodeSettings
    api: ApiSettings
    paths: PathSettings
    runtime: RuntimeSettings
    server: ServerSettings
    status: StatusSettings
    cgroups: CgroupSettings
    managers: ManagerSettings
    eviction: EvictionSettings
    shutdown: ShutdownSettings
    pods: PodSettings
    static: StaticSettings
    dns: DnsSettings
    logs: LogSettings
    images: ImageSettings
    process: ProcessSettings
    notices: tuple[str, ...]
    effective: Json
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def standalone(self) -> bool:
        """No API server: static pods only."""
        return not self.api.kubeconfig
