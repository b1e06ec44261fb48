"""Checks that the kind of a single field cannot express: ranges, and fields that depend on each other.

Follows pkg/kubelet/apis/config/validation/validation.go. All problems are collected, so that a user corrects the file
only once.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.common.model.addresses import is_address
from agent.common.model.durations import seconds
from agent.common.plan import sysctl_names
from agent.config import managers
from agent.resources.plan.memory_qos import TIERED
from nodelib import quantity
from nodelib.errors import Invalid
from nodelib.traces import endpoints, sampling
from nodelib.upstream import answers, gates

Flat = Mapping[str, Any]
Problem = tuple[str, str]

_NOT_NEGATIVE = (
    "eventRecordQPS",
    "eventBurst",
    "kubeAPIQPS",
    "kubeAPIBurst",
    "maxOpenFiles",
    "maxPods",
    "podsPerCore",
    "registryPullQPS",
    "registryBurst",
    "evictionMaxPodGracePeriod",
)
_RANGES = {
    "port": (1, 65535),
    "readOnlyPort": (0, 65535),
    "healthzPort": (0, 65535),
    "imageGCHighThresholdPercent": (0, 100),
    "imageGCLowThresholdPercent": (0, 100),
    "iptablesMasqueradeBit": (0, 31),
    "iptablesDropBit": (0, 31),
    "oomScoreAdj": (-1000, 1000),
    "nodeStatusMaxImages": (-1, 2**31 - 1),
    "nodeLeaseDurationSeconds": (1, 2**31 - 1),
    "maxParallelImagePulls": (1, 2**31 - 1),
    "containerLogMaxFiles": (2, 2**31 - 1),
    "containerLogMaxWorkers": (1, 2**31 - 1),
    "logging.verbosity": (0, 100),
    "tracing.samplingRatePerMillion": (0, sampling.ALL),
}
_ENFORCEMENTS = (
    "pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
    "none",
)
_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
)
BEHIND_GATES = {  # fields that may be set only while the gate is on
    "DefaultPodSysctls": ("defaultPodSysctls",),
    "GracefulNodeShutdown": ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods"),
    "GracefulNodeShutdownBasedOnPodPriority": ("shutdownGracePeriodByPodPriority",),
    "KubeletEnsureSecretPulledImages": (
        "imagePullCredentialsVerificationPolicy",
        "preloadedImagesVerificationAllowlist",
    ),
    "RotateKubeletServerCertificate": ("serverTLSBootstrap",),
}
_FACTOR_BEFORE = 0.9  # the default of memoryThrottlingFactor before 1.37, which files may still have
JSON_GATE = "LoggingBetaOptions"  # of logging.format: json
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_ALLOWED_IMAGE = re.compile(r"[^\s*@/]+(/[^\s*@:/]+)*(/\*)?")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")


def problems(config: Flat, on: Mapping[str, bool]) -> list[Problem]:
    """(field path, problem) of everything that is wrong with a complete, defaulted configuration.

    `on`: every feature gate that upstream knows, and whether it is on.
    """
    given = gates.problems(config["featureGates"], answers.gates())
    found: list[Problem] = [(f"featureGates.{name}", problem) for name, problem in given]
    found.extend((*_back_off(config, on), *_behind_gates(config, on), *managers.problems(config, on)))
    found.extend((*_logging(config, on), *_memory_qos(config, on)))
    for rule in (
        _ranges,
        _durations,
        _addresses,
        _images,
        _cgroups,
        _reservations,
        _evictions,
        _shutdowns,
        _taints,
        _tracing,
        _others,
    ):
        found.extend(rule(config))
    return found


def _ranges(config: Flat) -> Iterator[Problem]:
    for path in _NOT_NEGATIVE:
        if (config[path] or 0) < 0:
            yield path, f"{config[path]} must not be negative"
    for path, (low, high) in _RANGES.items():
        value = config[path]
        if value is not None and not low <= value <= high:
            yield path, f"{value} must be between {low} and {high}"


def _tracing(config: Flat) -> Iterator[Problem]:
    """ValidateTracingConfiguration of k8s.io/component-base/tracing/api/v1."""
    endpoint = config["tracing.endpoint"]
    if endpoint is not None and (wrong := endpoints.problem(endpoint)):
        yield "tracing.endpoint", f"{endpoint}: {wrong}"


def _durations(config: Flat) -> Iterator[Problem]:
    if not 0.001 <= seconds(config["cpuCFSQuotaPeriod"]) <= 1:
        yield "cpuCFSQuotaPeriod", "must be between 1ms and 1s"
    if seconds(config["containerLogMonitorInterval"]) < 3:
        yield "containerLogMonitorInterval", "must be 3s or more"
    for path in ("nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "syncFrequency", "runtimeRequestTimeout"):
        if seconds(config[path]) <= 0:
            yield path, "must be more than 0"
    least, most = seconds(config["imageMinimumGCAge"]), seconds(config["imageMaximumGCAge"])
    if least < 0 or most < 0:
        yield "imageMinimumGCAge" if least < 0 else "imageMaximumGCAge", "must not be negative"
    elif 0 < most <= least:
        yield "imageMaximumGCAge", "must be more than imageMinimumGCAge"


def _back_off(config: Flat, on: Mapping[str, bool]) -> Iterator[Problem]:
    path = "crashLoopBackOff.maxContainerRestartPeriod"
    if config[path] is not None and not on["KubeletCrashLoopBackOffMax"]:
        yield path, "must not be set while featureGates.KubeletCrashLoopBackOffMax is false"
    elif config[path] is not None and not 1 <= seconds(config[path]) <= 300:
        yield path, "must be between 1s and 300s"


def _default_sysctls(given: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name in given:
        path, plain = f"defaultPodSysctls.{name}", sysctl_names.normalized(name)
        if len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield path, "is not the name of a sysctl"
        elif not sysctl_names.namespace_of(plain):
            yield path, "is not a sysctl that a pod can have for itself: it has no namespace"
        elif plain in seen:
            yield path, f"{plain} is there twice"
        seen.add(plain)


def _behind_gates(config: Flat, on: Mapping[str, bool]) -> Iterator[Problem]:
    for gate, paths in BEHIND_GATES.items():
        for path in paths:
            value = config[path]
            if not on[gate] and value and value != "0s":
                yield path, f"must not be set while featureGates.{gate} is false"


def _memory_qos(config: Flat, on: Mapping[str, bool]) -> Iterator[Problem]:
    factor, policy = config["memoryThrottlingFactor"], config["memoryReservationPolicy"]
    if factor is not None and not 0 < factor <= 1:
        yield "memoryThrottlingFactor", "must be more than 0 and at most 1"
    if not on["MemoryQoS"] and factor not in (None, _FACTOR_BEFORE):
        yield "memoryThrottlingFactor", "must not be set while featureGates.MemoryQoS is false"
    if not on["MemoryQoS"] and policy == TIERED:
        yield "memoryReservationPolicy", f"{TIERED} needs featureGates.MemoryQoS"


def _logging(config: Flat, on: Mapping[str, bool]) -> Iterator[Problem]:
    """k8s.io/component-base/logs/api/v1 Validate."""
    if config["logging.format"] == "json":
        if not on[JSON_GATE]:
            yield "logging.format", f"must be text while featureGates.{JSON_GATE} is false"
        if config["logging.vmodule"]:
            yield "logging.vmodule", "is only for logging.format: text"
    for index, one in enumerate(config["logging.vmodule"]):
        pattern = one["filePattern"]
        if not pattern or {"=", ","} & set(pattern):
            yield f"logging.vmodule[{index}].filePattern", "must be a pattern without = and comma"


def _addresses(config: Flat) -> Iterator[Problem]:
    for path in ("address", "healthzBindAddress"):
        if not is_address(config[path]):
            yield path, f"{config[path]!r} is not an IP address"
    for index, server in enumerate(config["clusterDNS"]):
        if not is_address(server):
            yield f"clusterDNS[{index}]", f"{server!r} is not an IP address"
    for path in ("containerRuntimeEndpoint", "imageServiceEndpoint"):
        endpoint = config[path]
        if endpoint and not endpoint.startswith(("unix:///", "/")):
            yield path, f"{endpoint!r} is not a unix socket, such as unix:///run/containerd/containerd.sock"
    if bool(config["tlsCertFile"]) != bool(config["tlsPrivateKeyFile"]):
        yield "tlsCertFile", "needs tlsPrivateKeyFile, and vice versa"


def _images(config: Flat) -> Iterator[Problem]:
    if config["imageGCLowThresholdPercent"] >= config["imageGCHighThresholdPercent"]:
        yield "imageGCLowThresholdPercent", "must be less than imageGCHighThresholdPercent"
    allowed = config["preloadedImagesVerificationAllowlist"]
    if allowed and config["imagePullCredentialsVerificationPolicy"] != "NeverVerifyAllowlistedImages":
        yield (
            "preloadedImagesVerificationAllowlist",
            "needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages",
        )
    for index, pattern in enumerate(allowed):
        if not _ALLOWED_IMAGE.fullmatch(pattern):
            hint = "is neither an image without tag and digest nor a prefix that ends with /*"
            yield f"preloadedImagesVerificationAllowlist[{index}]", f"{pattern!r} {hint}"
    parallel = config["maxParallelImagePulls"]
    if config["serializeImagePulls"] and parallel is not None and parallel > 1:
        yield "maxParallelImagePulls", "cannot be more than 1 unless serializeImagePulls is false"
    try:
        if quantity.value(config["containerLogMaxSize"]) <= 0:
            yield "containerLogMaxSize", "must be more than 0"
    except Invalid as error:
        yield "containerLogMaxSize", error.message


def _cgroups(config: Flat) -> Iterator[Problem]:
    enforce = config["enforceNodeAllocatable"]
    for index, key in enumerate(enforce):
        path = f"enforceNodeAllocatable[{index}]"
        if key not in _ENFORCEMENTS:
            yield path, f"{key!r} is not one of {', '.join(_ENFORCEMENTS)}"
        elif key in enforce[:index]:
            yield path, f"{key!r} is given twice"
        elif key == "none" and len(enforce) > 1:
            yield path, "none cannot be combined with others"
        elif key != "none" and not config["cgroupsPerQOS"]:
            yield "cgroupsPerQOS", f"enforceNodeAllocatable: {key} needs cgroupsPerQOS: true; else write [none] there"
        for side in ("system", "kube"):
            if key.startswith(f"{side}-reserved") and not config[f"{side}ReservedCgroup"]:
                yield path, f"{key!r} needs {side}ReservedCgroup"
    for side in ("system", "kube"):
        if f"{side}-reserved" in enforce and f"{side}-reserved-compressible" in enforce:
            yield "enforceNodeAllocatable", f"{side}-reserved and {side}-reserved-compressible cannot be combined"
    root = config["cgroupRoot"]
    if root and (not root.startswith("/") or ".." in root.split("/")):
        yield "cgroupRoot", f"{root!r} must be an absolute path without '..'"


def _reservations(config: Flat) -> Iterator[Problem]:
    for path in ("systemReserved", "kubeReserved"):
        for name, amount in config[path].items():
            if name not in ("cpu", "memory", "ephemeral-storage", "pid") and not name.startswith("hugepages-"):
                yield f"{path}.{name}", "only cpu, memory, ephemeral-storage, pid and hugepages-* can be reserved"
            elif quantity.parse(amount) < 0:
                yield f"{path}.{name}", f"{amount} must not be negative"


def _evictions(config: Flat) -> Iterator[Problem]:
    for path in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, text in config[path].items():
            if signal not in _SIGNALS:
                yield f"{path}.{signal}", f"unknown signal; known are {', '.join(_SIGNALS)}"
                continue
            problem = _threshold_problem(text)
            if problem:
                yield f"{path}.{signal}", problem
    for signal, text in config["evictionSoftGracePeriod"].items():
        if signal not in _SIGNALS:
            yield f"evictionSoftGracePeriod.{signal}", f"unknown signal; known are {', '.join(_SIGNALS)}"
        elif seconds(text) < 0:
            yield f"evictionSoftGracePeriod.{signal}", f"{text} must not be negative"
    for signal in config["evictionSoft"]:
        if signal not in config["evictionSoftGracePeriod"]:
            yield f"evictionSoft.{signal}", "needs its evictionSoftGracePeriod"


def _shutdowns(config: Flat) -> Iterator[Problem]:
    whole, critical = (seconds(config[f"shutdownGracePeriod{part}"]) for part in ("", "CriticalPods"))
    for path, value in (("shutdownGracePeriod", whole), ("shutdownGracePeriodCriticalPods", critical)):
        if value != 0 and value < 1:
            yield path, "must be 0s, or 1s or more"
    if critical > whole:
        yield "shutdownGracePeriodCriticalPods", "is a part of shutdownGracePeriod and cannot be longer"
    if config["shutdownGracePeriodByPodPriority"] and (whole or critical):
        yield "shutdownGracePeriodByPodPriority", "cannot be combined with shutdownGracePeriod"
    for index, one in enumerate(config["shutdownGracePeriodByPodPriority"]):
        if one["shutdownGracePeriodSeconds"] < 0:
            yield f"shutdownGracePeriodByPodPriority[{index}]", "shutdownGracePeriodSeconds must not be negative"


def _threshold_problem(text: str) -> str:
    percent = _PERCENT.fullmatch(text)
    if percent:
        return "" if float(percent[1]) <= 100 else f"{text} is more than 100%"
    try:
        return "" if quantity.parse(text) >= 0 else f"{text} must not be negative"
    except Invalid:
        return f"{text!r} is neither a quantity such as 100Mi nor a percentage such as 10%"


def _taints(config: Flat) -> Iterator[Problem]:
    for index, taint in enumerate(config["registerWithTaints"]):
        if taint["effect"] not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            yield f"registerWithTaints[{index}].effect", f"{taint['effect']!r} is not a taint effect"
        if "timeAdded" in taint:
            yield f"registerWithTaints[{index}].timeAdded", "must not be set"


def _others(config: Flat) -> Iterator[Problem]:
    if config["systemCgroups"] and not config["cgroupRoot"]:
        yield "systemCgroups", "needs cgroupRoot"
    if config["systemCgroups"] and not config["systemCgroups"].strip("/"):
        yield "systemCgroups", "must not be the root"
    if config["enableSystemLogQuery"] and not config["enableSystemLogHandler"]:
        yield "enableSystemLogQuery", "needs enableSystemLogHandler: true"
    if config["runOnce"]:
        yield "runOnce", "run-once mode does not exist any more"
    logs = config["podLogsDir"]
    if not logs.startswith("/") or "//" in logs or ".." in logs.split("/") or not logs.isascii():
        yield "podLogsDir", f"{logs!r} must be an absolute, normalized ASCII path"
    yield from _default_sysctls(config["defaultPodSysctls"])
    ids = config["userNamespaces.idsPerPod"]
    if not 0 < ids < 2**32 or ids % 65536:
        yield "userNamespaces.idsPerPod", f"{ids} must be a positive multiple of 65536 below 2^32"
    cidr = config["podCIDR"]
    if cidr:
        try:
            ipaddress.ip_network(cidr)
        except ValueError as error:
            yield "podCIDR", str(error)
