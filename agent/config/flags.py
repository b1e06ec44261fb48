"""The command line: upstream's flags (cmd/kubelet/app/options).

A flag that has a field in KubeletConfiguration is checked like that field and wins over the file.
The syntax is pflag's: `--flag=value`, `--flag value`, `--flag` alone for booleans, `_` for `-`. `flag_values.py` reads
what the texts of a flag say.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from agent.config import flag_values
from agent.config.schema import FIELDS
from agent.config.values import BadValue
from nodelib.errors import Invalid
from nodelib.upstream.answers import flag_answers
from nodelib.version import KUBERNETES_VERSION

VERSION = KUBERNETES_VERSION  # of the kubelet whose flags and files these are

# Flag name -> (field path, form of its text).
FIELD_FLAGS: Mapping[str, tuple[str, str]] = {
    "enable-server": ("enableServer", "bool"),
    "fail-swap-on": ("failSwapOn", "bool"),
    "pod-manifest-path": ("staticPodPath", "string"),
    "sync-frequency": ("syncFrequency", "string"),
    "file-check-frequency": ("fileCheckFrequency", "string"),
    "http-check-frequency": ("httpCheckFrequency", "string"),
    "manifest-url": ("staticPodURL", "string"),
    "manifest-url-header": ("staticPodURLHeader", "headers"),
    "address": ("address", "string"),
    "port": ("port", "int"),
    "read-only-port": ("readOnlyPort", "int"),
    "fail-cgroupv1": ("failCgroupV1", "bool"),
    "container-runtime-endpoint": ("containerRuntimeEndpoint", "string"),
    "image-service-endpoint": ("imageServiceEndpoint", "string"),
    "anonymous-auth": ("authentication.anonymous.enabled", "bool"),
    "authentication-token-webhook": ("authentication.webhook.enabled", "bool"),
    "authentication-token-webhook-cache-ttl": ("authentication.webhook.cacheTTL", "string"),
    "client-ca-file": ("authentication.x509.clientCAFile", "string"),
    "authorization-mode": ("authorization.mode", "string"),
    "authorization-webhook-cache-authorized-ttl": ("authorization.webhook.cacheAuthorizedTTL", "string"),
    "authorization-webhook-cache-unauthorized-ttl": ("authorization.webhook.cacheUnauthorizedTTL", "string"),
    "tls-cert-file": ("tlsCertFile", "string"),
    "tls-private-key-file": ("tlsPrivateKeyFile", "string"),
    "rotate-server-certificates": ("serverTLSBootstrap", "bool"),
    "tls-cipher-suites": ("tlsCipherSuites", "list"),
    "tls-min-version": ("tlsMinVersion", "string"),
    "rotate-certificates": ("rotateCertificates", "bool"),
    "registry-qps": ("registryPullQPS", "int"),
    "registry-burst": ("registryBurst", "int"),
    "event-qps": ("eventRecordQPS", "int"),
    "event-burst": ("eventBurst", "int"),
    "enable-debugging-handlers": ("enableDebuggingHandlers", "bool"),
    "contention-profiling": ("enableContentionProfiling", "bool"),
    "healthz-port": ("healthzPort", "int"),
    "healthz-bind-address": ("healthzBindAddress", "string"),
    "oom-score-adj": ("oomScoreAdj", "int"),
    "cluster-domain": ("clusterDomain", "string"),
    "volume-plugin-dir": ("volumePluginDir", "string"),
    "cluster-dns": ("clusterDNS", "list"),
    "streaming-connection-idle-timeout": ("streamingConnectionIdleTimeout", "string"),
    "node-status-update-frequency": ("nodeStatusUpdateFrequency", "string"),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", "string"),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", "int"),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", "int"),
    "volume-stats-agg-period": ("volumeStatsAggPeriod", "string"),
    "feature-gates": ("featureGates", "gates"),
    "kubelet-cgroups": ("kubeletCgroups", "string"),
    "system-cgroups": ("systemCgroups", "string"),
    "provider-id": ("providerID", "string"),
    "cgroups-per-qos": ("cgroupsPerQOS", "bool"),
    "cgroup-driver": ("cgroupDriver", "string"),
    "cgroup-root": ("cgroupRoot", "string"),
    "cpu-manager-policy": ("cpuManagerPolicy", "string"),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", "map"),
    "cpu-manager-reconcile-period": ("cpuManagerReconcilePeriod", "string"),
    "qos-reserved": ("qosReserved", "map"),
    "topology-manager-policy": ("topologyManagerPolicy", "string"),
    "topology-manager-scope": ("topologyManagerScope", "string"),
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", "map"),
    "runtime-request-timeout": ("runtimeRequestTimeout", "string"),
    "hairpin-mode": ("hairpinMode", "string"),
    "max-pods": ("maxPods", "int"),
    "pod-cidr": ("podCIDR", "string"),
    "pod-max-pids": ("podPidsLimit", "int"),
    "resolv-conf": ("resolvConf", "string"),
    "runonce": ("runOnce", "bool"),
    "cpu-cfs-quota": ("cpuCFSQuota", "bool"),
    "cpu-cfs-quota-period": ("cpuCFSQuotaPeriod", "string"),
    "enable-controller-attach-detach": ("enableControllerAttachDetach", "bool"),
    "make-iptables-util-chains": ("makeIPTablesUtilChains", "bool"),
    "container-log-max-size": ("containerLogMaxSize", "string"),
    "container-log-max-files": ("containerLogMaxFiles", "int"),
    "allowed-unsafe-sysctls": ("allowedUnsafeSysctls", "list"),
    "node-status-max-images": ("nodeStatusMaxImages", "int"),
    "kernel-memcg-notification": ("kernelMemcgNotification", "bool"),
    "local-storage-capacity-isolation": ("localStorageCapacityIsolation", "bool"),
    "max-open-files": ("maxOpenFiles", "int"),
    "kube-api-content-type": ("contentType", "string"),
    "kube-api-qps": ("kubeAPIQPS", "int"),
    "kube-api-burst": ("kubeAPIBurst", "int"),
    "serialize-image-pulls": ("serializeImagePulls", "bool"),
    "eviction-hard": ("evictionHard", "thresholds"),
    "eviction-soft": ("evictionSoft", "thresholds"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "map"),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", "string"),
    "eviction-max-pod-grace-period": ("evictionMaxPodGracePeriod", "int"),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", "map"),
    "pods-per-core": ("podsPerCore", "int"),
    "protect-kernel-defaults": ("protectKernelDefaults", "bool"),
    "reserved-cpus": ("reservedSystemCPUs", "string"),
    "system-reserved": ("systemReserved", "map"),
    "kube-reserved": ("kubeReserved", "map"),
    "enforce-node-allocatable": ("enforceNodeAllocatable", "list"),
    "system-reserved-cgroup": ("systemReservedCgroup", "string"),
    "kube-reserved-cgroup": ("kubeReservedCgroup", "string"),
    "memory-manager-policy": ("memoryManagerPolicy", "string"),
    "reserved-memory": ("reservedMemory", "reserved-memory"),
    "register-node": ("registerNode", "bool"),
    "register-with-taints": ("registerWithTaints", "taints"),
    "seccomp-default": ("seccompDefault", "bool"),
    "logging-format": ("logging.format", "string"),
    "log-flush-frequency": ("logging.flushFrequency", "string"),
    "log-text-split-stream": ("logging.options.text.splitStream", "bool"),
    "log-text-info-buffer-size": ("logging.options.text.infoBufferSize", "string"),
    "log-json-split-stream": ("logging.options.json.splitStream", "bool"),
    "log-json-info-buffer-size": ("logging.options.json.infoBufferSize", "string"),
    "v": ("logging.verbosity", "int"),
    "vmodule": ("logging.vmodule", "vmodule"),
}

# Flags without a field: name -> (form, default, help).
OWN_FLAGS: Mapping[str, tuple[str, Any, str]] = {
    "config": ("string", "", "KubeletConfiguration file (v1beta1); flags win over it"),
    "config-dir": ("string", "", "folder of drop-in *.conf files, merged over --config in lexical order"),
    "kubeconfig": ("string", "", "how to reach the API server, as system:node:NAME"),
    "bootstrap-kubeconfig": (
        "string",
        "",
        "credentials for asking for a certificate, used while --kubeconfig does not exist",
    ),
    "hostname-override": ("string", "", "the node's name instead of the host's"),
    "node-ip": (
        "string",
        "",
        "the node's address (IPv4, IPv6, or one of each); default: the address that reaches the API server",
    ),
    "node-labels": ("map", {}, "labels to register the node with: key=value,..."),
    "image-credential-provider-config": (
        "string",
        "",
        "CredentialProviderConfig file: plugins that provide pull credentials",
    ),
    "image-credential-provider-bin-dir": ("string", "", "folder of the credential provider plugins"),
    "runtime-cgroups": ("string", "", "the container runtime's cgroup, for its part of /stats/summary"),
    "lock-file": ("string", "", "only one of the kubelets with this file runs, the others wait"),
    "exit-on-lock-contention": ("bool", False, "stop when another process opens the --lock-file"),
    "root-dir": ("string", "/var/lib/kubelet", "folder of the pods' volumes and state"),
    "cert-dir": ("string", "/var/lib/kubelet/pki", "folder of the node's certificates"),
}

# Accepted so that today's command lines of kubelets work: name -> form. What happens instead is in
# nodelib/upstream/answers/kubelet.json.
INERT_FLAGS: Mapping[str, str] = {
    "cloud-provider": "string",
    "minimum-container-ttl-duration": "string",
    "maximum-dead-containers-per-container": "int",
    "maximum-dead-containers": "int",
    "experimental-mounter-path": "string",
    "experimental-allocatable-ignore-eviction": "bool",
    "housekeeping-interval": "string",
}


@dataclass(frozen=True, slots=True)
class Flags:
    """A command line: values by field path, `own` flags without a field, and `inert` ones with what happens instead."""

    fields: Mapping[str, Any]
    own: Mapping[str, Any]
    inert: Mapping[str, str] = field(default_factory=dict)


def parse_flags(argv: Sequence[str]) -> Flags:
    """Raises Invalid for a bad flag, SystemExit(0) after --help and --version."""
    given = vars(_parser().parse_args([_dashes(word) for word in argv]))
    fields: dict[str, Any] = {}
    own = {name: default for name, (_, default, _) in OWN_FLAGS.items()}
    inert: dict[str, str] = {}
    for name, texts in given.items():
        if name in FIELD_FLAGS:
            path, form = FIELD_FLAGS[name]
            fields[path] = _field_value(name, path, form, texts)
        elif name in OWN_FLAGS:
            own[name] = _convert(name, OWN_FLAGS[name][0], texts)
        elif name in INERT_FLAGS:
            _convert(name, INERT_FLAGS[name], texts)
            inert[name] = flag_answers("kubelet")[name].instead
    return Flags(fields, own, inert)


def flagz(flags: Flags) -> dict[str, str]:
    """Every flag that has an effect, and its value as /flagz shows it."""
    found = {name: flags.fields.get(path, FIELDS[path].default) for name, (path, _) in FIELD_FLAGS.items()}
    return {name: _text(value) for name, value in {**found, **flags.own}.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(one)}" for key, one in sorted(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ",".join(map(_text, value)) + "]"
    return "" if value is None else str(value)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(message, obj="command line", action="See --help for the flags and their forms.")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(f"Kubernetes {VERSION}")
        parser.exit(0)


def _parser() -> _Parser:
    parser = _Parser(
        prog="nodewright agent",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The node agent: registers this node and runs the pods that are bound to it.\n"
        "Most settings belong in a KubeletConfiguration file (--config); a flag wins over the file.",
        epilog="Example:\n  nodewright agent --kubeconfig=/etc/kubernetes/kubelet.conf "
        "--config=/var/lib/kubelet/config.yaml",
    )
    parser.add_argument("--version", action=_Version, nargs="?", help="print the Kubernetes version and exit")
    main = parser.add_argument_group("node")
    for name, (form, _, text) in OWN_FLAGS.items():
        _add(main, name, form, text)
    fields = parser.add_argument_group("fields of KubeletConfiguration")
    for name, (path, form) in FIELD_FLAGS.items():
        _add(fields, name, form, f"{path} (default {FIELDS[path].default!r})".replace("%", "%%"))
    inert = parser.add_argument_group("accepted, without effect")
    for name, form in INERT_FLAGS.items():
        _add(inert, name, form, flag_answers("kubelet")[name].instead)
    return parser


def _add(group: argparse._ArgumentGroup, name: str, form: str, text: str) -> None:
    names = ["-v", "--v"] if name == "v" else [f"--{name}"]
    metavar = {"bool": "true|false", "int": "N", "list": "A,B", "map": "K=V,...", "gates": "K=true,..."}.get(form, "X")
    if form == "bool":
        group.add_argument(*names, dest=name, action="append", nargs="?", const="true", metavar=metavar, help=text)
    else:
        group.add_argument(*names, dest=name, action="append", metavar=metavar, help=text)


def _dashes(word: str) -> str:
    """pflag normalizes `_` to `-` in names."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _field_value(name: str, path: str, form: str, texts: list[str]) -> Any:
    value = _convert(name, form, texts)
    try:
        return FIELDS[path].check(value, path)
    except BadValue as error:
        raise _invalid(name, error.problem) from error


def _convert(name: str, form: str, texts: list[str]) -> Any:
    try:
        return flag_values.convert(form, texts)
    except ValueError as error:
        raise _invalid(name, str(error)) from error


def _invalid(name: str, problem: str) -> Invalid:
    return Invalid(problem, obj=f"--{name}", step="read the command line", action="See --help.")
