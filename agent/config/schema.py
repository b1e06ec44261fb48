"""Every field of KubeletConfiguration v1beta1: its kind, its default, and whether it is obeyed.

Follows k8s.io/kubelet/config/v1beta1 types.go and the defaults of pkg/kubelet/apis/config/v1beta1.
Eight defaults differ from upstream's, and can be changed as any other: seccompDefault (true), podPidsLimit (4096),
tlsCipherSuites (those that the CIS benchmark calls strong), failCgroupV1 (false: both cgroup versions are served),
kubeAPIQPS, kubeAPIBurst, registryPullQPS and registryBurst (none: requests and pulls are not limited in rate). What
upstream adds for flags without a file (anonymous access, AlwaysAllow, the read-only port) is never the default here.

A field that is not obeyed is known and checked all the same. When it is not set to its default, a line of the log says
what happens instead; its words are in nodelib/upstream/answers/kubelet.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.values import (
    Check,
    boolean,
    duration,
    duration_or_nanoseconds,
    int32,
    int64,
    list_of,
    map_of,
    number,
    one_of,
    quantity,
    record,
    string,
    uint32,
)
from agent.resources.plan.memory_qos import TIERED
from nodelib.ciphers import STRONG_CIPHERS

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `zero_is_unset`: upstream cannot tell the zero value from an absent one and takes the default.

    `equivalent`: of a field that is not obeyed, a value other than the default that asks for what happens here anyway.
    """

    check: Check
    default: Any = None
    zero_is_unset: bool = False
    obeyed: bool = True
    equivalent: Any = None


def _obeyed(check: Check, default: Any = None) -> Field:
    return Field(check, default)


def _filled(check: Check, default: Any) -> Field:
    return Field(check, default, zero_is_unset=True)


def _not_obeyed(check: Check, default: Any, equivalent: Any = None) -> Field:
    zero = bool(default) and check is not boolean
    return Field(check, default, zero_is_unset=zero, obeyed=False, equivalent=equivalent)


_TAINT = record({"key": string, "effect": string}, {"value": string, "timeAdded": string})

_SERVER: dict[str, Field] = {
    "enableServer": _obeyed(boolean, True),
    "address": _filled(string, "0.0.0.0"),
    "port": _filled(int32, 10250),
    "readOnlyPort": _obeyed(int32, 0),
    "tlsCertFile": _obeyed(string, ""),
    "tlsPrivateKeyFile": _obeyed(string, ""),
    "tlsCipherSuites": _filled(list_of(string), list(STRONG_CIPHERS)),
    "tlsCurvePreferences": _obeyed(list_of(int32), []),
    "tlsMinVersion": _obeyed(one_of("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"), ""),
    "rotateCertificates": _obeyed(boolean, False),
    "serverTLSBootstrap": _obeyed(boolean, False),
    "authentication.x509.clientCAFile": _obeyed(string, ""),
    "authentication.webhook.enabled": _obeyed(boolean, True),
    "authentication.webhook.cacheTTL": _filled(duration, "2m"),
    "authentication.anonymous.enabled": _obeyed(boolean, False),
    "authorization.mode": _filled(one_of("", "AlwaysAllow", "Webhook"), "Webhook"),
    "authorization.webhook.cacheAuthorizedTTL": _filled(duration, "5m"),
    "authorization.webhook.cacheUnauthorizedTTL": _filled(duration, "30s"),
    "enableDebuggingHandlers": _obeyed(boolean, True),
    "enableContentionProfiling": _not_obeyed(boolean, False),
    "enableProfilingHandler": _not_obeyed(boolean, True, equivalent=False),
    "enableDebugFlagsHandler": _obeyed(boolean, True),
    "enableSystemLogHandler": _obeyed(boolean, True),
    "enableSystemLogQuery": _obeyed(boolean, False),
    "healthzPort": _obeyed(int32, 10248),
    "healthzBindAddress": _filled(string, "127.0.0.1"),
    "streamingConnectionIdleTimeout": _filled(duration, "4h"),
    "showHiddenMetricsForVersion": _not_obeyed(string, ""),
    "tracing.endpoint": _obeyed(string, None),
    "tracing.samplingRatePerMillion": _obeyed(int32, None),
}

_SOURCES: dict[str, Field] = {
    "staticPodPath": _obeyed(string, ""),
    "staticPodURL": _obeyed(string, ""),
    "staticPodURLHeader": _obeyed(map_of(list_of(string)), {}),
    "syncFrequency": _filled(duration, "1m"),
    "fileCheckFrequency": _filled(duration, "20s"),
    "httpCheckFrequency": _filled(duration, "20s"),
    "configMapAndSecretChangeDetectionStrategy": _filled(one_of("", "Get", "Cache", "Watch"), "Watch"),
}

_NODE: dict[str, Field] = {
    "registerNode": _obeyed(boolean, True),
    "registerWithTaints": _obeyed(list_of(_TAINT), []),
    "providerID": _obeyed(string, ""),
    "podCIDR": _obeyed(string, ""),
    "nodeStatusUpdateFrequency": _filled(duration, "10s"),
    "nodeStatusReportFrequency": _filled(duration, "5m"),
    "nodeLeaseDurationSeconds": _filled(int32, 40),
    "nodeStatusMaxImages": _obeyed(int32, 50),
    "maxPods": _filled(int32, 110),
    "podsPerCore": _obeyed(int32, 0),
    "enableControllerAttachDetach": _obeyed(boolean, True),
    "localStorageCapacityIsolation": _obeyed(boolean, True),
    "kubeAPIQPS": _obeyed(int32, None),
    "kubeAPIBurst": _obeyed(int32, None),
    "contentType": _not_obeyed(string, "application/vnd.kubernetes.protobuf", equivalent="application/json"),
    "eventRecordQPS": _obeyed(int32, 50),
    "eventBurst": _obeyed(int32, 100),
    "shutdownGracePeriod": _obeyed(duration, "0s"),
    "shutdownGracePeriodCriticalPods": _obeyed(duration, "0s"),
    "shutdownGracePeriodByPodPriority": _obeyed(
        list_of(record({"priority": int32, "shutdownGracePeriodSeconds": int64})), []
    ),
    "failSwapOn": _obeyed(boolean, True),
    "protectKernelDefaults": _obeyed(boolean, False),
    "makeIPTablesUtilChains": _obeyed(boolean, True),
    "iptablesMasqueradeBit": _not_obeyed(int32, 14),
    "iptablesDropBit": _not_obeyed(int32, 15),
    "hairpinMode": _not_obeyed(
        one_of("", "promiscuous-bridge", "hairpin-veth", "none"), "promiscuous-bridge", equivalent="hairpin-veth"
    ),
    "maxOpenFiles": _filled(int64, 1000000),
    "oomScoreAdj": _obeyed(int32, -999),
    "featureGates": _obeyed(map_of(boolean), {}),
    "runOnce": _obeyed(boolean, False),
}

_CGROUPS: dict[str, Field] = {
    "cgroupRoot": _obeyed(string, ""),
    "cgroupsPerQOS": _obeyed(boolean, True),
    "cgroupDriver": _filled(one_of("", "cgroupfs", "systemd"), "cgroupfs"),
    "failCgroupV1": _obeyed(boolean, False),
    "kubeletCgroups": _obeyed(string, ""),
    "systemCgroups": _obeyed(string, ""),
    "systemReserved": _obeyed(map_of(quantity), {}),
    "kubeReserved": _obeyed(map_of(quantity), {}),
    "systemReservedCgroup": _obeyed(string, ""),
    "kubeReservedCgroup": _obeyed(string, ""),
    "enforceNodeAllocatable": _obeyed(list_of(string), ["pods"]),
    "reservedSystemCPUs": _obeyed(string, ""),
    "reservedMemory": _obeyed(list_of(record({"numaNode": int32, "limits": map_of(quantity)})), []),
    "podPidsLimit": _obeyed(int64, 4096),
    "cpuCFSQuota": _obeyed(boolean, True),
    "cpuCFSQuotaPeriod": _obeyed(duration, "100ms"),
    "singleProcessOOMKill": _obeyed(boolean, None),
    "cpuManagerPolicy": _filled(string, "none"),
    "cpuManagerPolicyOptions": _obeyed(map_of(string), {}),
    "cpuManagerReconcilePeriod": _filled(duration, "10s"),
    "memoryManagerPolicy": _filled(string, "None"),
    "topologyManagerPolicy": _filled(string, "none"),
    "topologyManagerScope": _filled(string, "container"),
    "topologyManagerPolicyOptions": _obeyed(map_of(string), {}),
    "qosReserved": _not_obeyed(map_of(string), {}),
    "memorySwap.swapBehavior": _obeyed(one_of("", "NoSwap", "LimitedSwap"), ""),
    "memoryThrottlingFactor": _obeyed(number, None),
    "memoryReservationPolicy": _filled(one_of("", "None", TIERED), "None"),
    "kernelMemcgNotification": _not_obeyed(boolean, False),
}

_PODS: dict[str, Field] = {
    "podLogsDir": _filled(string, "/var/log/pods"),
    "clusterDomain": _obeyed(string, ""),
    "clusterDNS": _obeyed(list_of(string), []),
    "resolvConf": _obeyed(string, "/etc/resolv.conf"),
    "seccompDefault": _obeyed(boolean, True),
    "allowedUnsafeSysctls": _obeyed(list_of(string), []),
    "defaultPodSysctls": _obeyed(map_of(string), {}),
    "crashLoopBackOff.maxContainerRestartPeriod": _obeyed(duration),
    "containerLogMaxSize": _filled(string, "10Mi"),
    "containerLogMaxFiles": _obeyed(int32, 5),
    "containerLogMaxWorkers": _filled(int32, 1),
    "containerLogMonitorInterval": _obeyed(duration, "10s"),
    "volumePluginDir": _not_obeyed(string, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
    "volumeStatsAggPeriod": _not_obeyed(duration, "1m"),
    "userNamespaces.idsPerPod": _filled(int64, 65536),
}

_RUNTIME: dict[str, Field] = {
    "containerRuntimeEndpoint": _filled(string, "unix:///run/containerd/containerd.sock"),
    "imageServiceEndpoint": _obeyed(string, ""),
    "runtimeRequestTimeout": _filled(duration, "2m"),
    "registryPullQPS": _obeyed(int32, None),
    "registryBurst": _obeyed(int32, None),
    "serializeImagePulls": _obeyed(boolean, None),
    "maxParallelImagePulls": _obeyed(int32, None),
    "imagePullCredentialsVerificationPolicy": _obeyed(
        one_of("", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"), ""
    ),
    "preloadedImagesVerificationAllowlist": _obeyed(list_of(string), []),
    "imageMinimumGCAge": _filled(duration, "2m"),
    "imageMaximumGCAge": _obeyed(duration, "0s"),
    "imageGCHighThresholdPercent": _obeyed(int32, 85),
    "imageGCLowThresholdPercent": _obeyed(int32, 80),
    "evictionHard": _obeyed(map_of(string), None),
    "evictionSoft": _obeyed(map_of(string), {}),
    "evictionSoftGracePeriod": _obeyed(map_of(duration), {}),
    "evictionPressureTransitionPeriod": _filled(duration, "5m"),
    "evictionMaxPodGracePeriod": _obeyed(int32, 0),
    "evictionMinimumReclaim": _obeyed(map_of(string), {}),
    "mergeDefaultEvictionSettings": _obeyed(boolean, False),
}

_VMODULE = list_of(record({"filePattern": string, "verbosity": uint32}))
_LOGGING: dict[str, Field] = {
    "logging.format": _filled(one_of("", "text", "json"), "text"),
    "logging.flushFrequency": _not_obeyed(duration_or_nanoseconds, "5s"),
    "logging.verbosity": _obeyed(uint32, 0),
    "logging.vmodule": _obeyed(_VMODULE, []),
    "logging.options.text.splitStream": _not_obeyed(boolean, False),
    "logging.options.text.infoBufferSize": _not_obeyed(quantity, "0"),
    "logging.options.json.splitStream": _not_obeyed(boolean, False),
    "logging.options.json.infoBufferSize": _not_obeyed(quantity, "0"),
}

FIELDS: Mapping[str, Field] = {**_SERVER, **_SOURCES, **_NODE, **_CGROUPS, **_PODS, **_RUNTIME, **_LOGGING}

# Defaults while the gate of the feature is on, as it is by default.
LONGEST_RESTART_PERIOD = "300s"
VERIFICATION_POLICY = "NeverVerifyPreloadedImages"

# pkg/kubelet/eviction/defaults_linux.go
DEFAULT_EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
