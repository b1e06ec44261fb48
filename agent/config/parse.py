"""argv and KubeletConfiguration files to the agent's Settings.

Precedence as upstream's (cmd/kubelet/app/server.go): flags over --config-dir drop-ins over --config over defaults
(agent/config/schema.py).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.common.plan.durations import seconds
from agent.config import labels, load
from agent.config.decode import nested
from agent.config.flags import parse_flags, shown
from agent.config.managers import manager_settings
from agent.logs.model import LogSettings
from agent.server.model import AuthSettings, ServerSettings
from agent.settings import (
    ApiSettings,
    CgroupSettings,
    DnsSettings,
    EvictionSettings,
    ImageSettings,
    NodeSettings,
    PathSettings,
    PodSettings,
    ProcessSettings,
    RuntimeSettings,
    Settings,
    ShutdownSettings,
    StaticSettings,
    StatusSettings,
)
from nodelib import quantity
from nodelib.errors import Invalid

_LOCAL_SOCKET = "/run/nodewright/agent.sock"


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
