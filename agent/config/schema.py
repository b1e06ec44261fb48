"""Every field of KubeletConfiguration v1beta1: its kind, its default, and whether it is obeyed.

Follows k8s.io/kubelet/config/v1beta1 types.go and the defaults of pkg/kubelet/apis/config/v1beta1.
Four defaults differ from upstream's, and can be changed as any other: seccompDefault (true), podPidsLimit (4096),
tlsCipherSuites (those that the CIS benchmark calls strong), failCgroupV1 (false: both cgroup versions are served). What
upstream adds for flags without a file (anonymous access, AlwaysAllow, the read-only port) is never the default here.

A field with an `instead` is known and checked but not obeyed. When it is not set to its default, a line of the log says
what happens instead.
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
from nodelib.ciphers import STRONG_CIPHERS

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `zero_is_unset`: upstream cannot tell the zero value from an absent one and takes the default.

    `instead`: what happens instead of obeying it, "" if it is obeyed. `equivalent`: a value other than the default that
    asks for what happens here anyway.
    """

    check: Check
    default: Any = None
    zero_is_unset: bool = False
    instead: str = ""
    equivalent: Any = None


def _obeyed(check: Check, default: Any = None) -> Field:
    return Field(check, default)


def _filled(check: Check, default: Any) -> Field:
    return Field(check, default, zero_is_unset=True)


def _ignored(check: Check, default: Any, instead: str, equivalent: Any = None) -> Field:
    zero = bool(default) and check is not boolean
    return Field(check, default, zero_is_unset=zero, instead=instead, equivalent=equivalent)


_TAINT = record({"key": string, "effect": string}, {"value": string, "timeAdded": string})
_CNI_RULES = "only the CNI plugin and the service proxy make rules"

_SERVER: dict[str, Field] = {
    "enableServer": _obeyed(boolean, True),
    "address": _filled(string, "0.0.0.0"),
    "port": _filled(int32, 10250),
    "readOnlyPort": _obeyed(int32, 0),
    "tlsCertFile": _obeyed(string, ""),
    "tlsPrivateKeyFile": _obeyed(string, ""),
    "tlsCipherSuites": _filled(list_of(string), list(STRONG_CIPHERS)),
    "tlsCurvePreferences": _ignored(list_of(int32), [], "the curves of the TLS library are offered"),
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
    "enableContentionProfiling": _ignored(boolean, False, "there is no Go scheduler to profile"),
    "enableProfilingHandler": _ignored(boolean, True, "there is no /debug/pprof", equivalent=False),
    "enableDebugFlagsHandler": _ignored(
        boolean, True, "there is no /debug/flags/v; restart with another --v", equivalent=False
    ),
    "enableSystemLogHandler": _obeyed(boolean, True),
    "enableSystemLogQuery": _ignored(boolean, False, "/logs/?query= is answered as not enabled"),
    "healthzPort": _obeyed(int32, 10248),
    "healthzBindAddress": _filled(string, "127.0.0.1"),
    "streamingConnectionIdleTimeout": _filled(duration, "4h"),
    "showHiddenMetricsForVersion": _ignored(string, "", "no metric is hidden"),
    "tracing.endpoint": _ignored(string, None, "no traces are exported"),
    "tracing.samplingRatePerMillion": _ignored(int32, None, "no traces are exported"),
}

_SOURCES: dict[str, Field] = {
    "staticPodPath": _obeyed(string, ""),
    "staticPodURL": _obeyed(string, ""),
    "staticPodURLHeader": _obeyed(map_of(list_of(string)), {}),
    "syncFrequency": _ignored(
        duration, "1m", "pods are synced when something happens to them, and checked against the runtime's lists"
    ),
    "fileCheckFrequency": _filled(duration, "20s"),
    "httpCheckFrequency": _filled(duration, "20s"),
    "configMapAndSecretChangeDetectionStrategy": _ignored(
        one_of("", "Get", "Cache", "Watch"), "Watch", "ConfigMaps and Secrets that pods use are watched"
    ),
}

_NODE: dict[str, Field] = {
    "registerNode": _obeyed(boolean, True),
    "registerWithTaints": _obeyed(list_of(_TAINT), []),
    "providerID": _obeyed(string, ""),
    "podCIDR": _ignored(string, "", "the pod range comes from the Node object, if there is an API server"),
    "nodeStatusUpdateFrequency": _filled(duration, "10s"),
    "nodeStatusReportFrequency": _filled(duration, "5m"),
    "nodeLeaseDurationSeconds": _filled(int32, 40),
    "nodeStatusMaxImages": _obeyed(int32, 50),
    "maxPods": _filled(int32, 110),
    "podsPerCore": _obeyed(int32, 0),
    "enableControllerAttachDetach": _obeyed(boolean, True),
    "localStorageCapacityIsolation": _obeyed(boolean, True),
    "kubeAPIQPS": _ignored(int32, 50, "requests to the API server are not limited in rate; they are few"),
    "kubeAPIBurst": _ignored(int32, 100, "requests to the API server are not limited in rate; they are few"),
    "contentType": _ignored(
        string, "application/vnd.kubernetes.protobuf", "the API server is asked in JSON", equivalent="application/json"
    ),
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
    "iptablesMasqueradeBit": _ignored(int32, 14, _CNI_RULES),
    "iptablesDropBit": _ignored(int32, 15, _CNI_RULES),
    "hairpinMode": _ignored(
        one_of("", "promiscuous-bridge", "hairpin-veth", "none"),
        "promiscuous-bridge",
        "the CNI plugin decides about hairpin mode",
        equivalent="hairpin-veth",
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
    "kubeletCgroups": _ignored(string, "", "the agent stays in the cgroup it was started in"),
    "systemCgroups": _ignored(string, "", "system processes stay in their cgroups"),
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
    "qosReserved": _ignored(map_of(string), {}, "memory requests are not reserved at the QoS level"),
    "memorySwap.swapBehavior": _obeyed(one_of("", "NoSwap", "LimitedSwap"), ""),
    "memoryThrottlingFactor": _ignored(number, None, "memory.high is not set"),
    "memoryReservationPolicy": _ignored(one_of("", "None", "TieredReservation"), "None", "memory.min is not set"),
    "kernelMemcgNotification": _ignored(boolean, False, "memory is checked every second when little of it is left"),
}

_PODS: dict[str, Field] = {
    "podLogsDir": _filled(string, "/var/log/pods"),
    "clusterDomain": _obeyed(string, ""),
    "clusterDNS": _obeyed(list_of(string), []),
    "resolvConf": _obeyed(string, "/etc/resolv.conf"),
    "seccompDefault": _obeyed(boolean, True),
    "allowedUnsafeSysctls": _obeyed(list_of(string), []),
    "defaultPodSysctls": _ignored(map_of(string), {}, "pods get only the sysctls that they ask for"),
    "crashLoopBackOff.maxContainerRestartPeriod": _ignored(duration, "300s", "restarts back off up to 300s"),
    "containerLogMaxSize": _filled(string, "10Mi"),
    "containerLogMaxFiles": _obeyed(int32, 5),
    "containerLogMaxWorkers": _filled(int32, 1),
    "containerLogMonitorInterval": _obeyed(duration, "10s"),
    "volumePluginDir": _ignored(
        string, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "FlexVolume plugins are not run"
    ),
    "volumeStatsAggPeriod": _ignored(duration, "1m", "volume usage is measured when it is asked for"),
    "userNamespaces.idsPerPod": _ignored(int64, 65536, "pods with hostUsers: false are refused"),
}

_RUNTIME: dict[str, Field] = {
    "containerRuntimeEndpoint": _filled(string, "unix:///run/containerd/containerd.sock"),
    "imageServiceEndpoint": _ignored(string, "", "images are pulled through containerRuntimeEndpoint"),
    "runtimeRequestTimeout": _ignored(duration, "2m", "each kind of call has its own time limit"),
    "registryPullQPS": _ignored(int32, 5, "pulls are limited in number (maxParallelImagePulls), not in rate"),
    "registryBurst": _ignored(int32, 10, "pulls are limited in number (maxParallelImagePulls), not in rate"),
    "serializeImagePulls": _obeyed(boolean, None),
    "maxParallelImagePulls": _obeyed(int32, None),
    "imagePullCredentialsVerificationPolicy": _filled(
        one_of("", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"),
        "NeverVerifyPreloadedImages",
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
_BUFFERS = record({}, {"splitStream": boolean, "infoBufferSize": quantity})
_LOGGING: dict[str, Field] = {
    "logging.format": _ignored(one_of("", "text", "json"), "text", "each event is a line of text on stderr"),
    "logging.flushFrequency": _ignored(duration_or_nanoseconds, "5s", "every line is written immediately"),
    "logging.verbosity": _obeyed(uint32, 0),
    "logging.vmodule": _ignored(_VMODULE, [], "one verbosity applies to all modules"),
    "logging.options.text": _ignored(_BUFFERS, {}, "each event is a line of text on stderr"),
    "logging.options.json": _ignored(_BUFFERS, {}, "each event is a line of text on stderr"),
}

FIELDS: Mapping[str, Field] = {**_SERVER, **_SOURCES, **_NODE, **_CGROUPS, **_PODS, **_RUNTIME, **_LOGGING}

# pkg/kubelet/eviction/defaults_linux.go
DEFAULT_EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
