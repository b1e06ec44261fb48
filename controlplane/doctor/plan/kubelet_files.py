"""The configuration of a kubelet or kube-proxy from its command line and files, for one that cannot be asked. Pure.

Only what the CIS benchmark judges is complete. Precedence and defaults are upstream's (cmd/kubelet/app/server.go,
pkg/kubelet/apis/config/v1beta1/defaults.go).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodelib.json_values import Json

# Flags of the kubelet that have a field, with the form of their text.
_FLAGS: Mapping[str, tuple[str, str]] = {
    "anonymous-auth": ("authentication.anonymous.enabled", "bool"),
    "authorization-mode": ("authorization.mode", "text"),
    "client-ca-file": ("authentication.x509.clientCAFile", "text"),
    "read-only-port": ("readOnlyPort", "number"),
    "streaming-connection-idle-timeout": ("streamingConnectionIdleTimeout", "text"),
    "make-iptables-util-chains": ("makeIPTablesUtilChains", "bool"),
    "event-qps": ("eventRecordQPS", "number"),
    "tls-cert-file": ("tlsCertFile", "text"),
    "tls-private-key-file": ("tlsPrivateKeyFile", "text"),
    "rotate-certificates": ("rotateCertificates", "bool"),
    "rotate-server-certificates": ("serverTLSBootstrap", "bool"),
    "tls-cipher-suites": ("tlsCipherSuites", "list"),
    "tls-min-version": ("tlsMinVersion", "text"),
    "pod-max-pids": ("podPidsLimit", "number"),
    "seccomp-default": ("seccompDefault", "bool"),
    "feature-gates": ("featureGates", "gates"),
}
_WITH_FILE: Json = {"authorization": {"mode": "Webhook"}}
# applyLegacyDefaults: a kubelet without a file is as open as it always was.
_WITHOUT_FILE: Json = {
    "authentication": {"anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": 10255,
}


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """Flags by name without dashes: `--flag=value`, `--flag value`, and `--flag` alone as true. The last one counts."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, text = word[2:].partition("=")
        after = words[at + 1] if at + 1 < len(words) else "--"
        found[name.replace("_", "-")] = text if equals else "true" if after.startswith("-") else after
    return found


def from_files(flags: Mapping[str, str], documents: Iterable[Json]) -> Json:
    """The KubeletConfiguration: defaults, then the files in their order, then flags."""
    given = list(documents)
    config = copy.deepcopy(_WITH_FILE if given else _WITHOUT_FILE)
    for document in given:
        _merge(config, document)
    for name, text in flags.items():
        if name in _FLAGS:
            path, form = _FLAGS[name]
            _set(config, path.split("."), _value(form, text))
    return config


def _merge(into: Json, other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif value is not None:
            into[name] = copy.deepcopy(value)


def _set(config: Json, path: list[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        if not isinstance(config.get(name), dict):
            config[name] = {}
        config = config[name]
    if isinstance(value, dict) and isinstance(config.get(last), dict):
        config[last].update(value)
    else:
        config[last] = value


def _value(form: str, text: str) -> Any:
    if form == "bool":
        return text.lower() in ("true", "t", "1")
    if form == "number":
        return int(text) if text.lstrip("-").isdigit() else text
    if form == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    if form == "gates":
        pairs = (part.partition("=") for part in text.split(","))
        return {name.strip(): value.strip().lower() == "true" for name, _, value in pairs if name.strip()}
    return text


def proxy_settings(flags: Mapping[str, str], document: Json | None) -> tuple[str, str]:
    """(kubeconfig, address of the metrics) of a kube-proxy; with a --config file its flags for them are ignored."""
    default = "127.0.0.1:10249"
    if document is None:
        return flags.get("kubeconfig", ""), flags.get("metrics-bind-address") or default
    connection = document.get("clientConnection") or {}
    return str(connection.get("kubeconfig") or ""), str(document.get("metricsBindAddress") or default)
