"""argv and KubeletConfiguration files to frozen Settings, one dataclass per concern.

Precedence as upstream's (cmd/kubelet/app/server.go): flags over --config-dir drop-ins over --config
over defaults (agent/config/schema.py). What is here is obeyed; a field that is not has its `instead` in
the schema and no place here. All times are seconds, all sizes bytes. `notices` are the
lines that the agent logs at its start: what was asked for and is not done, and what happens instead.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.config import labels, load
from agent.config.decode import nested
from agent.config.flags import VERSION, parse_flags, shown
from agent.config.managers import ManagerSettings, manager_settings
from agent.config.values import seconds
from nodelib import quantity
from nodelib.errors import Invalid

Json = dict[str, Any]
KUBERNETES_VERSION = VERSION
_LOCAL_SOCKET = "/run/nodewright/agent.sock"


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
class AuthSettings:
    """Who may use the kubelet API, and how long answers of the API server are remembered."""

    anonymous: bool
    client_ca_file: str
    webhook: bool
    webhook_cache_ttl: float
    mode: str
    authorized_ttl: float
    unauthorized_ttl: float


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTPS server on `port`, the health server (port 0: none) and the read-only port (0: none).

    `local_socket`: a unix socket for root on this machine, "": none.
    """

    enabled: bool
    address: str
    port: int
    read_only_port: int
    tls_cert_file: str
    tls_key_file: str
    tls_min_version: str
    tls_cipher_suites: tuple[str, ...]
    healthz_address: str
    healthz_port: int
    debugging_handlers: bool
    system_log_handler: bool
    streaming_idle_timeout: float
    auth: AuthSettings
    tls_bootstrap: bool = False
    local_socket: str = ""


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
class LogSettings:
    """Rotation of container logs."""

    max_size: int
    max_files: int
    workers: int
    monitor_interval: float


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


def parse(argv: Sequence[str], *, hostname: str | None = None) -> Settings:
    """Read the command line (without the program's name) and the files that it names.

    Raises Invalid, which names the flag, or the file, line and field; SystemExit(0) after --help and --version.
    """
    flags = parse_flags(argv)
    config = load.complete(flags)
    settings = build(config, flags.own, load.notices(config, flags), hostname or socket.gethostname())
    return replace(settings, flags=shown(flags))


def build(config: Mapping[str, Any], own: Mapping[str, Any], notices: tuple[str, ...], hostname: str) -> Settings:
    """Settings of a complete, checked configuration (field path -> value)."""
    return Settings(
        node=_node(config, own, hostname),
        api=_api(config, own),
        paths=PathSettings(own["root-dir"], own["cert-dir"], config["podLogsDir"]),
        runtime=RuntimeSettings(config["containerRuntimeEndpoint"].removeprefix("unix://")),
        server=_server(config),
        status=StatusSettings(
            seconds(config["nodeStatusUpdateFrequency"]),
            seconds(config["nodeStatusReportFrequency"]),
            config["nodeLeaseDurationSeconds"],
            config["nodeStatusMaxImages"],
        ),
        cgroups=_cgroups(config, own),
        managers=manager_settings(config),
        eviction=_eviction(config),
        shutdown=ShutdownSettings(
            seconds(config["shutdownGracePeriod"]),
            seconds(config["shutdownGracePeriodCriticalPods"]),
            tuple(
                (one["priority"], one["shutdownGracePeriodSeconds"])
                for one in config["shutdownGracePeriodByPodPriority"]
            ),
        ),
        pods=_pods(config),
        static=StaticSettings(
            config["staticPodPath"],
            config["staticPodURL"],
            {name: tuple(values) for name, values in config["staticPodURLHeader"].items()},
            seconds(config["fileCheckFrequency"]),
            seconds(config["httpCheckFrequency"]),
        ),
        dns=DnsSettings(tuple(config["clusterDNS"]), config["clusterDomain"], config["resolvConf"]),
        logs=LogSettings(
            quantity.value(config["containerLogMaxSize"]),
            config["containerLogMaxFiles"],
            config["containerLogMaxWorkers"],
            seconds(config["containerLogMonitorInterval"]),
        ),
        images=ImageSettings(
            1 if config["serializeImagePulls"] else config["maxParallelImagePulls"] or 0,
            config["imageGCHighThresholdPercent"],
            config["imageGCLowThresholdPercent"],
            seconds(config["imageMinimumGCAge"]),
            seconds(config["imageMaximumGCAge"]),
            config["imagePullCredentialsVerificationPolicy"],
            own["image-credential-provider-config"],
            own["image-credential-provider-bin-dir"],
            tuple(config["preloadedImagesVerificationAllowlist"]),
        ),
        process=_process(config, own),
        notices=notices,
        effective=nested(config),
    )


def _process(config: Mapping[str, Any], own: Mapping[str, Any]) -> ProcessSettings:
    if own["exit-on-lock-contention"] and not own["lock-file"]:
        raise Invalid(
            "it needs --lock-file",
            obj="--exit-on-lock-contention",
            step="read the command line",
            action="Give the lock file too, or leave this flag out.",
        )
    return ProcessSettings(
        config["logging.verbosity"],
        config["oomScoreAdj"],
        config["maxOpenFiles"],
        config["failSwapOn"],
        lock_file=own["lock-file"],
        exit_on_lock_contention=own["exit-on-lock-contention"],
    )


def _node(config: Mapping[str, Any], own: Mapping[str, Any], hostname: str) -> NodeSettings:
    name = (own["hostname-override"] or hostname).strip().lower()
    problem = labels.name_problem(name)
    if problem:
        raise Invalid(
            f"{name!r} {problem}",
            obj="node name",
            action="Give a valid name with --hostname-override (lower case letters, digits, '-' and '.').",
        )
    for problem in labels.problems(own["node-labels"]):
        raise Invalid(problem, obj="--node-labels", action="Correct the labels, or set them through the API.")
    return NodeSettings(
        name=name,
        ips=_node_ips(own["node-ip"]),
        labels=own["node-labels"],
        taints=tuple(config["registerWithTaints"]),
        register=config["registerNode"],
        provider_id=config["providerID"],
        controller_attach_detach=config["enableControllerAttachDetach"],
        pod_cidr=config["podCIDR"],
    )


def _api(config: Mapping[str, Any], own: Mapping[str, Any]) -> ApiSettings:
    kubeconfig, bootstrap = own["kubeconfig"], own["bootstrap-kubeconfig"]
    if bootstrap and not kubeconfig:
        raise Invalid(
            "needs a place for what is made of it",
            obj=f"--bootstrap-kubeconfig {bootstrap}",
            action="Name the kubeconfig that is to be written with --kubeconfig.",
        )
    return ApiSettings(kubeconfig, bootstrap, config["rotateCertificates"])


def _node_ips(text: str) -> tuple[str, ...]:
    problem, ips = labels.node_ips(text)
    if problem:
        raise Invalid(problem, obj=f"--node-ip {text}", action="Give one address, or one IPv4 and one IPv6 address.")
    return ips


def _server(config: Mapping[str, Any]) -> ServerSettings:
    return ServerSettings(
        enabled=config["enableServer"],
        address=config["address"],
        port=config["port"],
        read_only_port=config["readOnlyPort"],
        tls_cert_file=config["tlsCertFile"],
        tls_key_file=config["tlsPrivateKeyFile"],
        tls_bootstrap=config["serverTLSBootstrap"],
        tls_min_version=config["tlsMinVersion"],
        tls_cipher_suites=tuple(config["tlsCipherSuites"]),
        healthz_address=config["healthzBindAddress"],
        healthz_port=config["healthzPort"],
        debugging_handlers=config["enableDebuggingHandlers"],
        system_log_handler=config["enableSystemLogHandler"],
        streaming_idle_timeout=seconds(config["streamingConnectionIdleTimeout"]),
        local_socket=_LOCAL_SOCKET,
        auth=AuthSettings(
            anonymous=config["authentication.anonymous.enabled"],
            client_ca_file=config["authentication.x509.clientCAFile"],
            webhook=config["authentication.webhook.enabled"],
            webhook_cache_ttl=seconds(config["authentication.webhook.cacheTTL"]),
            mode=config["authorization.mode"],
            authorized_ttl=seconds(config["authorization.webhook.cacheAuthorizedTTL"]),
            unauthorized_ttl=seconds(config["authorization.webhook.cacheUnauthorizedTTL"]),
        ),
    )


def _cgroups(config: Mapping[str, Any], own: Mapping[str, Any]) -> CgroupSettings:
    return CgroupSettings(
        root=config["cgroupRoot"].rstrip("/") or "/",
        driver=config["cgroupDriver"],
        per_qos=config["cgroupsPerQOS"],
        fail_v1=config["failCgroupV1"],
        cpu_cfs_quota=config["cpuCFSQuota"],
        cpu_cfs_period=seconds(config["cpuCFSQuotaPeriod"]),
        pod_pids_limit=config["podPidsLimit"],
        single_process_oom_kill=config["singleProcessOOMKill"],
        swap_behavior=config["memorySwap.swapBehavior"],
        kube_reserved=config["kubeReserved"],
        system_reserved=config["systemReserved"],
        kube_reserved_cgroup=config["kubeReservedCgroup"],
        system_reserved_cgroup=config["systemReservedCgroup"],
        enforce=frozenset(config["enforceNodeAllocatable"]),
        runtime_cgroup=own["runtime-cgroups"],
    )


def _eviction(config: Mapping[str, Any]) -> EvictionSettings:
    return EvictionSettings(
        hard=config["evictionHard"],
        soft=config["evictionSoft"],
        soft_grace={signal: seconds(text) for signal, text in config["evictionSoftGracePeriod"].items()},
        minimum_reclaim=config["evictionMinimumReclaim"],
        pressure_transition_period=seconds(config["evictionPressureTransitionPeriod"]),
        max_grace=config["evictionMaxPodGracePeriod"],
        local_storage=config["localStorageCapacityIsolation"],
    )


def _pods(config: Mapping[str, Any]) -> PodSettings:
    return PodSettings(
        max_pods=config["maxPods"],
        pods_per_core=config["podsPerCore"],
        seccomp_default=config["seccompDefault"],
        allowed_unsafe_sysctls=tuple(config["allowedUnsafeSysctls"]),
    )
