"""KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), read strictly: an unknown field is an error.

`SUPPORTED` and `IGNORED` are the whole schema (k8s.io/kube-proxy/config/v1alpha1). The type of an IGNORED field is
checked; if it is set to anything, one log line at the start says that it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from nodelib import safe_yaml
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.upstream.answers import field_answers

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> float:
    """Seconds of a Go duration ("1m30s", "250ms", "0"). Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        return 0.0
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration such as 30s or 1m30s")
    text = value.strip().removeprefix("+")
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-")
    if text == "0":
        return 0.0
    if not text or _DURATION.sub("", text):
        raise ValueError(f"{value!r} is not a duration such as 30s or 1m30s")
    return sign * sum(float(number) * _UNIT[unit] for number, unit in _DURATION.findall(text))


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return tuple([_text(item) for item in value])


def _anything(value: object) -> object:
    return value


def _size(value: object) -> str:
    """A quantity; "" for zero."""
    text = _text(value)
    return "" if text == "0" else text


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**31:
        raise ValueError(f"{value!r} is not a number")
    return value


def _form(value: object) -> str:
    text = _text(value)
    if text not in ("", "text", "json"):
        raise ValueError(f"{value!r} is neither text nor json")
    return text


def _vmodule(value: object) -> tuple[tuple[str, int], ...]:
    """Pattern of a module's file name, and verbosity."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    found = []
    for one in value:
        if not isinstance(one, dict) or set(one) - {"filePattern", "verbosity"}:
            raise ValueError(f"{one!r} is not a mapping of filePattern and verbosity")
        pattern, verbosity = _text(one.get("filePattern", "")), _integer(one.get("verbosity", 0))
        if not pattern or {"=", ","} & set(pattern) or not 0 <= verbosity < 2**31:
            raise ValueError(f"{one!r} is not a pattern without = and comma, and a verbosity of 0 or more")
        found.append((pattern, verbosity))
    return tuple(found)


def _gates(value: object) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a mapping of gates to true or false")
    return {_text(name): _boolean(on) for name, on in value.items()}


def instead(field: str) -> str:
    """What happens instead of obeying this field."""
    return field_answers("kube-proxy")[field].instead


Reader = Callable[[object], object]
_PERIODS: dict[str, Reader] = {"syncPeriod": parse_duration, "minSyncPeriod": parse_duration}

SUPPORTED: dict[str, Reader] = {
    "featureGates": _gates,
    "clientConnection.kubeconfig": _text,
    "clientConnection.qps": _number,
    "clientConnection.burst": _integer,
    "logging.verbosity": _integer,
    "logging.format": _form,
    "logging.vmodule": _vmodule,
    "hostnameOverride": _text,
    "bindAddress": _text,
    "healthzBindAddress": _text,
    "metricsBindAddress": _text,
    "bindAddressHardFail": _boolean,
    "mode": _text,
    "iptables.masqueradeBit": _integer,
    "iptables.masqueradeAll": _boolean,
    "iptables.localhostNodePorts": _boolean,
    **{f"iptables.{name}": reader for name, reader in _PERIODS.items()},
    "nftables.masqueradeBit": _integer,
    "nftables.masqueradeAll": _boolean,
    **{f"nftables.{name}": reader for name, reader in _PERIODS.items()},
    "detectLocalMode": _text,
    "detectLocal.bridgeInterface": _text,
    "detectLocal.interfaceNamePrefix": _text,
    "clusterCIDR": _text,
    "nodePortAddresses": _texts,
    "oomScoreAdj": _integer,
    "conntrack.maxPerCore": _integer,
    "conntrack.min": _integer,
    "conntrack.tcpEstablishedTimeout": parse_duration,
    "conntrack.tcpCloseWaitTimeout": parse_duration,
    "conntrack.tcpBeLiberal": _boolean,
    "conntrack.udpTimeout": parse_duration,
    "conntrack.udpStreamTimeout": parse_duration,
}

# The type of each. What happens instead is in nodelib/upstream/answers/kube-proxy.json.
IGNORED: dict[str, Reader] = {
    "clientConnection.acceptContentTypes": _text,
    "clientConnection.contentType": _text,
    "logging.flushFrequency": _anything,
    **{
        f"logging.options.{form}.{name}": reader
        for form in ("text", "json")
        for name, reader in (("splitStream", _boolean), ("infoBufferSize", _size))
    },
    "enableProfiling": _boolean,
    "showHiddenMetricsForVersion": _text,
    "configSyncPeriod": parse_duration,
    "portRange": _text,
    "windowsRunAsService": _boolean,
    **{f"ipvs.{name}": parse_duration for name in (*_PERIODS, "tcpTimeout", "tcpFinTimeout", "udpTimeout")},
    "ipvs.scheduler": _text,
    "ipvs.excludeCIDRs": _texts,
    "ipvs.strictARP": _boolean,
    **{f"winkernel.{name}": _text for name in ("networkName", "sourceVip", "rootHnsEndpointName")},
    "winkernel.enableDSR": _boolean,
    "winkernel.forwardHealthCheckVip": _boolean,
}

_HEAD = f"Begin it with `apiVersion: {API_VERSION}` and `kind: KubeProxyConfiguration`."


def read_config(path: str) -> tuple[Json, tuple[str, ...]]:
    """Values by dotted field name, and lines to log. Raises Invalid, naming the file and the field."""
    try:
        content = safe_yaml.load_file(path, safe_yaml.Limits(unique_keys=True))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _wrong(path, str(error), "Check the path in --config, and that the file is YAML.") from error
    return decode_config(content, path)


def decode_config(content: object, path: str) -> tuple[Json, tuple[str, ...]]:
    """The same for a document that has been parsed already."""
    if not isinstance(content, dict):
        raise _wrong(path, "not a mapping", _HEAD)
    if content.get("kind") != "KubeProxyConfiguration" or content.get("apiVersion") != API_VERSION:
        raise _wrong(path, f"kind {content.get('kind')!r}, apiVersion {content.get('apiVersion')!r}", _HEAD)
    values: Json = {}
    notices: list[str] = []
    _walk(path, "", content, values, notices)
    return values, tuple(notices)


def _walk(path: str, prefix: str, content: Mapping[Any, Any], values: Json, notices: list[str]) -> None:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if name in ("kind", "apiVersion"):
            continue
        if name in SUPPORTED:
            if value is not None:
                values[name] = _read(path, name, SUPPORTED[name], value)
        elif name in IGNORED:
            if value and _read(path, name, IGNORED[name], value):
                notices.append(f"{path}: {name} is not supported: {instead(name)}")
        elif any(field.startswith(f"{name}.") for field in (*SUPPORTED, *IGNORED)):
            if value is not None and not isinstance(value, dict):
                raise _wrong(path, f"field {name} is not a mapping", "Correct the field.")
            _walk(path, f"{name}.", value or {}, values, notices)
        else:
            raise _wrong(path, f"unknown field {name!r}", "Correct the name or remove the field.")


def _read(path: str, name: str, reader: Reader, value: object) -> object:
    try:
        return reader(value)
    except ValueError as error:
        raise _wrong(path, f"field {name}: {error}", "Correct the field.") from error


def _wrong(path: str, problem: str, action: str) -> Invalid:
    return Invalid(problem, obj=path, step="read the configuration", action=action)
