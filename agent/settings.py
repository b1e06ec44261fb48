"""The agent's Settings: one frozen dataclass per concern, each field with the place that it comes from.

What is here is obeyed; a field of KubeletConfiguration that is not has no setting, but an `instead` in
agent/config/schema.py. All times are seconds, all sizes bytes. Some settings stand beside the code that they are for
(agent/logs/model.py, agent/server/model.py); agent/config/bind.py fills them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from agent.common.model.binding import config, flag, gate, gate_source
from agent.common.model.durations import seconds
from agent.common.model.pod_settings import PodDefaults, VolumeGates
from agent.common.model.rates import Rate, pull_rate, request_rate
from agent.common.model.states import BackOffBounds
from agent.images.plan.image_gc import ImageGcPolicy
from agent.logs.model import LogSettings
from agent.managers.model.cpus import Cpus, parse_cpus
from agent.managers.plan.options import CpuOptions, TopologyOptions, cpu_options, topology_options
from agent.node.model import NodePolicy
from agent.node.plan.shutdown import Period, periods
from agent.probes.model import ProbeGates
from agent.resources.plan import cgroups
from agent.server.model import ServerSettings
from agent.userns.model import UserNamespaceSettings
from agent.volumes.model.detection import ChangeDetection
from nodelib import quantity
from nodelib.daemons.log import LogOptions
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who this node is. `name` is the host's name in lower case unless --hostname-override is given.

    `pod_cidr`: for an agent without an API server; otherwise the Node object has it.
    """

    name: Annotated[str, flag("hostname-override")]
    ips: Annotated[tuple[str, ...], flag("node-ip")]
    register: Annotated[bool, config("registerNode")]
    pod_cidr: Annotated[str, config("podCIDR")]
    util_chains: Annotated[bool, config("makeIPTablesUtilChains")] = True


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How to reach the API server: with `bootstrap` while `kubeconfig` is missing or its certificate has expired.

    `limit`: of the requests other than those for the Node, its Lease and Events; None: there is none.
    `streaming_lists`: see KubeClient.
    """

    kubeconfig: Annotated[str, flag("kubeconfig")]
    bootstrap: Annotated[str, flag("bootstrap-kubeconfig")]
    rotate: Annotated[bool, config("rotateCertificates")]
    limit: Annotated[Rate | None, config("kubeAPIQPS", "kubeAPIBurst", convert=request_rate)] = None
    streaming_lists: Annotated[bool, gate("WatchListClient")] = True


@dataclass(frozen=True, slots=True)
class PathSettings:
    """Folders on the host."""

    root_dir: Annotated[str, flag("root-dir")]
    cert_dir: Annotated[str, flag("cert-dir")]
    pod_logs_dir: Annotated[str, config("podLogsDir")]
    container_logs_dir: str = "/var/log/containers"


def _socket_path(endpoint: str) -> str:
    return endpoint.removeprefix("unix://")


def _image_socket_path(images: str, runtime: str) -> str:
    return _socket_path(images or runtime)


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The CRI endpoints as socket paths. `request_timeout`: seconds for a call that has no time limit of its own."""

    endpoint: Annotated[str, config("containerRuntimeEndpoint", convert=_socket_path)]
    image_endpoint: Annotated[
        str, config("imageServiceEndpoint", "containerRuntimeEndpoint", convert=_image_socket_path)
    ]
    request_timeout: Annotated[float, config("runtimeRequestTimeout", convert=seconds)]


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """Node status and Lease; `health_messages`: whether pods' statuses have what DRA drivers say of devices."""

    update_frequency: Annotated[float, config("nodeStatusUpdateFrequency", convert=seconds)]
    report_frequency: Annotated[float, config("nodeStatusReportFrequency", convert=seconds)]
    lease_duration: Annotated[int, config("nodeLeaseDurationSeconds")]
    health_messages: Annotated[bool, gate("ResourceHealthStatusMessage")]


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Requests for Events to the API server: how many a second (0: no limit), and at once."""

    qps: Annotated[int, config("eventRecordQPS")]
    burst: Annotated[int, config("eventBurst")]


def _absolute(path: str) -> str:
    return "/" + path.strip("/") if path else ""


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """The cgroups of pods, and what is reserved for the system and the kubelet; reservations are quantities as text.

    The last are the container runtime's own cgroup, the agent's, and that of all processes without one; "" if it was
    not given.
    """

    pods: cgroups.Policy
    single_process_oom_kill: Annotated[bool | None, config("singleProcessOOMKill")]
    swap_behavior: Annotated[str, config("memorySwap.swapBehavior")]
    kube_reserved: Annotated[Mapping[str, str], config("kubeReserved")]
    system_reserved: Annotated[Mapping[str, str], config("systemReserved")]
    kube_reserved_cgroup: Annotated[str, config("kubeReservedCgroup")]
    system_reserved_cgroup: Annotated[str, config("systemReservedCgroup")]
    enforce: Annotated[frozenset[str], config("enforceNodeAllocatable", convert=frozenset)]
    runtime_cgroup: Annotated[str, flag("runtime-cgroups")]
    kubelet_cgroup: Annotated[str, config("kubeletCgroups", convert=_absolute)] = ""
    system_cgroup: Annotated[str, config("systemCgroups", convert=_absolute)] = ""


def _all_seconds(periods: Mapping[str, str]) -> dict[str, float]:
    return {signal: seconds(text) for signal, text in periods.items()}


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Thresholds and reclaims as quantities or percentages; `max_grace` in whole seconds.

    `huge_pages`: memory that is set aside for huge pages is not available.
    """

    hard: Annotated[Mapping[str, str], config("evictionHard")]
    soft: Annotated[Mapping[str, str], config("evictionSoft")]
    soft_grace: Annotated[Mapping[str, float], config("evictionSoftGracePeriod", convert=_all_seconds)]
    minimum_reclaim: Annotated[Mapping[str, str], config("evictionMinimumReclaim")]
    pressure_transition_period: Annotated[float, config("evictionPressureTransitionPeriod", convert=seconds)]
    max_grace: Annotated[int, config("evictionMaxPodGracePeriod")]
    local_storage: Annotated[bool, config("localStorageCapacityIsolation")]
    huge_pages: Annotated[bool, gate("HugepageAwareEviction")]


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """What pods may ask for."""

    unsafe_sysctls: Annotated[tuple[str, ...], config("allowedUnsafeSysctls", convert=tuple)]
    compares_taints: Annotated[bool, gate("TaintTolerationComparisonOperators")]


Headers = Mapping[str, tuple[str, ...]]


def _headers(given: Mapping[str, list[str]]) -> Headers:
    return {name: tuple(values) for name, values in given.items()}


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Where static pods are read, "" for nowhere, and how often. The headers may hold credentials."""

    path: Annotated[str, config("staticPodPath")]
    url: Annotated[str, config("staticPodURL")]
    url_headers: Annotated[Headers, config("staticPodURLHeader", convert=_headers)] = field(repr=False)
    file_frequency: Annotated[float, config("fileCheckFrequency", convert=seconds)]
    url_frequency: Annotated[float, config("httpCheckFrequency", convert=seconds)]


def _parallel_pulls(serialize: bool, limit: int | None) -> int:
    return 1 if serialize else limit or 0


def _verified(policy: str) -> str:
    """Without a policy (the gate is off) nothing is verified."""
    return policy or "NeverVerify"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """`parallel_pulls` 0: no limit. `gc`: when images are removed that nothing uses.

    `pull_rate`: pulls beyond it fail; None: none do. `provider_tokens`: whether plugins may have tokens of service
    accounts.
    """

    parallel_pulls: Annotated[int, config("serializeImagePulls", "maxParallelImagePulls", convert=_parallel_pulls)]
    pull_rate: Annotated[Rate | None, config("registryPullQPS", "registryBurst", convert=pull_rate)]
    gc: ImageGcPolicy
    verify: Annotated[str, config("imagePullCredentialsVerificationPolicy", convert=_verified)]
    providers_config: Annotated[str, flag("image-credential-provider-config")]
    providers_dir: Annotated[str, flag("image-credential-provider-bin-dir")]
    provider_tokens: Annotated[bool, gate("KubeletServiceAccountTokenForCredentialProviders")]
    allowlist: Annotated[tuple[str, ...], config("preloadedImagesVerificationAllowlist", convert=tuple)]


def _log_options(verbosity: int, form: str, vmodule: list[Json]) -> LogOptions:
    return LogOptions(verbosity, form, tuple((one["filePattern"], one["verbosity"]) for one in vmodule))


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The agent's own process and what it demands of the machine."""

    logging: Annotated[
        LogOptions, config("logging.verbosity", "logging.format", "logging.vmodule", convert=_log_options)
    ]
    oom_score_adj: Annotated[int, config("oomScoreAdj")]
    max_open_files: Annotated[int, config("maxOpenFiles")]
    fail_swap_on: Annotated[bool, config("failSwapOn")]
    protect_kernel_defaults: Annotated[bool, config("protectKernelDefaults")]
    lock_file: Annotated[str, flag("lock-file")]
    exit_on_lock_contention: Annotated[bool, flag("exit-on-lock-contention")]


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Spans of pods, by OTLP to `endpoint` ("": upstream's default). `per_million` of the pods, 0: none."""

    endpoint: Annotated[str, config("tracing.endpoint", convert=lambda endpoint: endpoint or "")]
    per_million: Annotated[int, config("tracing.samplingRatePerMillion", convert=lambda rate: rate or 0)]


def reserved_cpu(chosen: str, system: Mapping[str, str], kube: Mapping[str, str]) -> float:
    """CPUs reserved for the system and the kubelet. Raises Invalid for what is neither a CPU list nor a quantity."""
    cpus = parse_cpus(chosen)
    return len(cpus) or float(sum(quantity.parse(amounts.get("cpu", "0")) for amounts in (system, kube)))


_OPTION_GATES = ("CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions")


def _cpu_options(policy: str, options: Mapping[str, str], *on: bool) -> CpuOptions:
    gates = dict(zip(_OPTION_GATES, on, strict=True))
    return cpu_options(options, gates) if policy == "static" else CpuOptions()


def _topology_options(policy: str, options: Mapping[str, str]) -> TopologyOptions:
    return topology_options(options) if policy != "none" else TopologyOptions()


def _reserved_memory(entries: list[Json]) -> tuple[tuple[int, dict[str, int]], ...]:
    return tuple(
        (entry["numaNode"], {kind: quantity.value(amount) for kind, amount in entry["limits"].items()})
        for entry in entries
    )


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The CPU, memory and topology managers.

    `reserve`: how many CPUs are kept back in all; `reserved_cpus`: which ones, if they were chosen; `reserved_memory`:
    NUMA node, and bytes by kind.
    """

    static_cpus: Annotated[bool, config("cpuManagerPolicy", convert=lambda policy: policy == "static")]
    cpu_options: Annotated[
        CpuOptions,
        config("cpuManagerPolicy", "cpuManagerPolicyOptions", *map(gate_source, _OPTION_GATES), convert=_cpu_options),
    ]
    reconcile_period: Annotated[float, config("cpuManagerReconcilePeriod", convert=seconds)]
    reserve: Annotated[float, config("reservedSystemCPUs", "systemReserved", "kubeReserved", convert=reserved_cpu)]
    reserved_cpus: Annotated[Cpus, config("reservedSystemCPUs", convert=parse_cpus)]
    static_memory: Annotated[bool, config("memoryManagerPolicy", convert=lambda policy: policy == "Static")]
    reserved_memory: Annotated[
        tuple[tuple[int, Mapping[str, int]], ...], config("reservedMemory", convert=_reserved_memory)
    ]
    topology: Annotated[str, config("topologyManagerPolicy")]
    scope: Annotated[str, config("topologyManagerScope")]
    topology_options: Annotated[
        TopologyOptions, config("topologyManagerPolicy", "topologyManagerPolicyOptions", convert=_topology_options)
    ]


def _shutdown_periods(by_priority: list[Json], whole: str, critical: str) -> tuple[Period, ...]:
    configured = (Period(entry["priority"], entry["shutdownGracePeriodSeconds"]) for entry in by_priority)
    return periods(configured, seconds(whole), seconds(critical))


def _restarts(longest: str | None, configurable: bool, reduced: bool) -> BackOffBounds:
    """newCrashLoopBackOff in pkg/kubelet/kubelet.go: what is configured wins, also over the first delay."""
    bounds = BackOffBounds(1.0, 60.0) if reduced else BackOffBounds()
    if not configurable or longest is None:
        return bounds
    return BackOffBounds(min(bounds.first, seconds(longest)), seconds(longest))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that was configured.

    `selinux_every_mode`: volumes of every access mode are mounted with SELinux contexts, not only ReadWriteOncePod.
    `notices`: lines for the log about what was asked for and is not done, and what happens instead; `effective`: the
    whole KubeletConfiguration, for /configz; `flags`: for /flagz.
    """

    node: NodeSettings
    node_policy: NodePolicy
    api: ApiSettings
    paths: PathSettings
    runtime: RuntimeSettings
    server: ServerSettings
    status: StatusSettings
    events: EventSettings
    cgroups: CgroupSettings
    managers: ManagerSettings
    eviction: EvictionSettings
    shutdown_periods: Annotated[
        tuple[Period, ...],
        config(
            "shutdownGracePeriodByPodPriority",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
            convert=_shutdown_periods,
        ),
    ]
    restarts: Annotated[
        BackOffBounds,
        config(
            "crashLoopBackOff.maxContainerRestartPeriod",
            gate_source("KubeletCrashLoopBackOffMax"),
            gate_source("ReduceDefaultCrashLoopBackOffDecay"),
            convert=_restarts,
        ),
    ]
    admission: AdmissionSettings
    selinux_every_mode: Annotated[bool, gate("SELinuxMount")]
    pod_defaults: PodDefaults
    volume_gates: VolumeGates
    probe_gates: ProbeGates
    objects: ChangeDetection
    user_namespaces: UserNamespaceSettings
    static: StaticSettings
    logs: LogSettings
    images: ImageSettings
    process: ProcessSettings
    tracing: TracingSettings
    notices: tuple[str, ...]
    effective: Json
    flags: Mapping[str, str]

    @property
    def standalone(self) -> bool:
        """No API server: static pods only."""
        return not self.api.kubeconfig
