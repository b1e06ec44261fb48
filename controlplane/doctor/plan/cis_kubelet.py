"""CIS Kubernetes Benchmark 4.2 and 4.3: how the running kubelet and kube-proxy are configured. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.doctor.model import NodeFacts
from controlplane.doctor.plan.verdict import Verdict, bad, good, unknown
from nodelib.ciphers import STRONG_CIPHERS

_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
# Go knows each of the two also by a longer name.
_STRONG = {*STRONG_CIPHERS, *(f"{name}_SHA256" for name in STRONG_CIPHERS if name.endswith("POLY1305")), *_TLS13}
_ZERO = re.compile(r"[0.hmsunµ]*", re.ASCII)
_METRICS = "127.0.0.1:10249"

Of = Callable[[NodeFacts], Verdict]


def value(config: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The field at a dotted path, `default` when it is absent."""
    found: Any = config
    for name in path.split("."):
        if not isinstance(found, Mapping) or found.get(name) is None:
            return default
        found = found[name]
    return found


def _known(judged: Of) -> Of:
    """The verdict when the configuration is known; else that it could not be judged, and why."""

    def checked(facts: NodeFacts) -> Verdict:
        if not facts.unknown:
            return judged(facts)
        return unknown(
            f"the running configuration is unknown: {facts.unknown}",
            "Name a kubeconfig that may read it (get nodes/proxy) with --kubeconfig FILE.",
        )

    return checked


def _setting(facts: NodeFacts, name: str, wanted: str) -> str:
    files = " or ".join(one.path for one in facts.configs) or "its KubeletConfiguration"
    return f"Set {name}: {wanted} in {files}, and restart the kubelet."


@_known
def no_anonymous(facts: NodeFacts) -> Verdict:
    path = "authentication.anonymous.enabled"
    if value(facts.configuration, path, False) is False:
        return good(f"{path}: false")
    return bad(f"{path}: true", _setting(facts, path, "false"))


@_known
def authorizes(facts: NodeFacts) -> Verdict:
    path = "authorization.mode"
    found = value(facts.configuration, path, "")
    if found and "AlwaysAllow" not in str(found).split(","):
        return good(f"{path}: {found}")
    return bad(f"{path}: {found or 'not set'}", _setting(facts, path, "Webhook"))


@_known
def has_client_ca(facts: NodeFacts) -> Verdict:
    path = "authentication.x509.clientCAFile"
    found = value(facts.configuration, path, "")
    if found:
        return good(f"{path}: {found}")
    return bad(f"{path} is not set", _setting(facts, path, "/etc/kubernetes/pki/ca.crt"))


@_known
def no_read_only_port(facts: NodeFacts) -> Verdict:
    port = value(facts.configuration, "readOnlyPort", 0)
    return good("readOnlyPort: 0") if port == 0 else bad(f"readOnlyPort: {port}", _setting(facts, "readOnlyPort", "0"))


@_known
def streams_time_out(facts: NodeFacts) -> Verdict:
    path = "streamingConnectionIdleTimeout"
    found = value(facts.configuration, path, "4h0m0s")
    if isinstance(found, str) and not _ZERO.fullmatch(found):
        return good(f"{path}: {found}")
    return bad(f"{path}: {found}: an idle stream stays open for ever", _setting(facts, path, "4h0m0s"))


@_known
def makes_chains(facts: NodeFacts) -> Verdict:
    path = "makeIPTablesUtilChains"
    if value(facts.configuration, path, True) is True:
        return good(f"{path}: true")
    return bad(f"{path}: false", _setting(facts, path, "true"))


def own_hostname(facts: NodeFacts) -> Verdict:
    found = facts.flags.get("hostname-override", "")
    if not found:
        return good("--hostname-override is not given")
    return bad(
        f"--hostname-override={found}: the name may differ from the one in the node's certificates",
        "Leave the flag out, and give the machine that name instead (hostnamectl set-hostname).",
    )


@_known
def events_are_limited(facts: NodeFacts) -> Verdict:
    path = "eventRecordQPS"
    found = value(facts.configuration, path, 50)
    if isinstance(found, int) and found > 0:
        return good(f"{path}: {found}, eventBurst: {value(facts.configuration, 'eventBurst', 100)}")
    return bad(f"{path}: {found}: any number of events is sent", _setting(facts, path, "50"))


@_known
def serves_tls(facts: NodeFacts) -> Verdict:
    config = facts.configuration
    cert, key = value(config, "tlsCertFile", ""), value(config, "tlsPrivateKeyFile", "")
    if cert and key:
        return good(f"tlsCertFile: {cert}, tlsPrivateKeyFile: {key}")
    fix = _setting(facts, "tlsCertFile and tlsPrivateKeyFile", "the paths of a pair")
    if cert or key:
        return bad(f"only one of tlsCertFile and tlsPrivateKeyFile is set: {cert or key}", fix)
    there = [one.path for one in facts.serving if not one.problem]
    if not there:
        return bad("no serving certificate is configured, and none is in --cert-dir", fix)
    if value(config, "serverTLSBootstrap", False) is True:
        return good(f"serverTLSBootstrap: true, certificate and key in {' and '.join(there)}")
    return good(
        f"the kubelet's own pair in {' and '.join(there)}; it is self-signed, so that clients cannot verify it: a"
        " cluster that approves kubelet-serving requests gives a better one with serverTLSBootstrap: true"
    )


@_known
def rotates(facts: NodeFacts) -> Verdict:
    path = "rotateCertificates"
    if value(facts.configuration, path, False) is True:
        return good(f"{path}: true")
    return bad(f"{path}: false: the client certificate expires one day", _setting(facts, path, "true"))


@_known
def rotates_serving(facts: NodeFacts) -> Verdict:
    path = "featureGates.RotateKubeletServerCertificate"
    if value(facts.configuration, path, True) is False:
        return bad(f"{path}: false", f"Remove the gate from {_setting(facts, path, 'true').removeprefix('Set ')}")
    if value(facts.configuration, "serverTLSBootstrap", False) is True:
        return good("serverTLSBootstrap: true, and the gate RotateKubeletServerCertificate is on")
    return good(
        "the gate RotateKubeletServerCertificate is on; with serverTLSBootstrap off, nothing is asked for (4.2.9)"
    )


@_known
def ciphers_are_strong(facts: NodeFacts) -> Verdict:
    path, config = "tlsCipherSuites", facts.configuration
    if value(config, "tlsMinVersion", "") == "VersionTLS13":
        return good("tlsMinVersion: VersionTLS13, whose suites are all strong")
    listed = value(config, path, [])
    names = list(map(str, listed)) if isinstance(listed, list) else [str(listed)]
    weak = [name for name in names if name not in _STRONG]
    if names and not weak:
        return good(f"{path}: {', '.join(names)}")
    found = f"{path} has {', '.join(weak)}" if weak else f"{path} is not set: the library's suites are offered"
    return bad(found, _setting(facts, path, f"[{', '.join(STRONG_CIPHERS)}]"))


@_known
def limits_pids(facts: NodeFacts) -> Verdict:
    path = "podPidsLimit"
    found = value(facts.configuration, path, -1)
    if isinstance(found, int) and found > 0:
        return good(f"{path}: {found}")
    return bad(f"{path}: {found}: one pod can take all process ids of the node", _setting(facts, path, "4096"))


@_known
def seccomp_by_default(facts: NodeFacts) -> Verdict:
    path = "seccompDefault"
    if value(facts.configuration, path, False) is True:
        return good(f"{path}: true")
    return bad(f"{path}: false: containers that name no profile run unconfined", _setting(facts, path, "true"))


def proxy_metrics_stay_here(facts: NodeFacts) -> Verdict:
    proxy = facts.proxy
    if proxy is None:
        return good("no kube-proxy runs on this node")
    fix = f"Set metricsBindAddress: {_METRICS} in its KubeProxyConfiguration, and restart it."
    open_at = [one for one in proxy.listening if not _is_loopback(one)]
    if open_at:
        return bad(f"its metrics are served at {', '.join(open_at)}", fix)
    if proxy.listening:
        return good(f"its metrics are served at {', '.join(proxy.listening)}")
    if proxy.problem:
        return unknown(proxy.problem)
    if not _is_loopback(proxy.metrics):
        return bad(f"metricsBindAddress: {proxy.metrics}", fix)
    return good(f"metricsBindAddress: {proxy.metrics} (nothing listens there now)")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_loopback
    except ValueError:
        return host == "localhost"
