"""kube-proxy's command line (cmd/kube-proxy/app/options.go): names, types, and the field that each flag sets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from nodelib.errors import Invalid
from nodelib.text_numbers import is_number
from nodelib.traces import settings as tracing
from nodelib.version import KUBERNETES_VERSION
from proxy.config.file import instead, parse_duration


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is not true or false")


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _list(text: str) -> tuple[str, ...]:
    return tuple([part.strip() for part in text.split(",") if part.strip()])


def _gates(text: str) -> dict[str, bool]:
    pairs = [part.partition("=") for part in _list(text)]
    return {name.strip(): _boolean(value.strip()) for name, _, value in pairs}


def _form(text: str) -> str:
    if text not in ("text", "json"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither text nor json")
    return text


def _vmodule(text: str) -> tuple[tuple[str, int], ...]:
    pairs = [part.partition("=") for part in _list(text)]
    if not all(pattern and is_number(verbosity) for pattern, _, verbosity in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATTERN=N,...")
    return tuple([(pattern, int(verbosity)) for pattern, _, verbosity in pairs])


# flag -> field of the configuration file
SETTING_FLAGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "feature-gates": ("featureGates", _gates),
    "kubeconfig": ("clientConnection.kubeconfig", str),
    "bind-address": ("bindAddress", str),
    "healthz-bind-address": ("healthzBindAddress", str),
    "metrics-bind-address": ("metricsBindAddress", str),
    "bind-address-hard-fail": ("bindAddressHardFail", _boolean),
    "proxy-mode": ("mode", str),
    "iptables-masquerade-bit": ("iptables.masqueradeBit", int),
    "masquerade-all": ("iptables.masqueradeAll", _boolean),
    "iptables-localhost-nodeports": ("iptables.localhostNodePorts", _boolean),
    "iptables-sync-period": ("iptables.syncPeriod", _duration),
    "iptables-min-sync-period": ("iptables.minSyncPeriod", _duration),
    "detect-local-mode": ("detectLocalMode", str),
    "pod-bridge-interface": ("detectLocal.bridgeInterface", str),
    "pod-interface-name-prefix": ("detectLocal.interfaceNamePrefix", str),
    "cluster-cidr": ("clusterCIDR", str),
    "nodeport-addresses": ("nodePortAddresses", _list),
    "oom-score-adj": ("oomScoreAdj", int),
    "conntrack-max-per-core": ("conntrack.maxPerCore", int),
    "conntrack-min": ("conntrack.min", int),
    "conntrack-tcp-timeout-established": ("conntrack.tcpEstablishedTimeout", _duration),
    "conntrack-tcp-timeout-close-wait": ("conntrack.tcpCloseWaitTimeout", _duration),
    "conntrack-tcp-be-liberal": ("conntrack.tcpBeLiberal", _boolean),
    "conntrack-udp-timeout": ("conntrack.udpTimeout", _duration),
    "conntrack-udp-timeout-stream": ("conntrack.udpStreamTimeout", _duration),
    "kube-api-qps": ("clientConnection.qps", float),
    "kube-api-burst": ("clientConnection.burst", int),
    "logging-format": ("logging.format", _form),
    "vmodule": ("logging.vmodule", _vmodule),
}
LOG_FLAGS = ("logging-format", "vmodule")  # these win over the file, as -v

# Flags that have no field in the configuration file and work with or without one.
OWN_FLAGS: dict[str, Callable[[str], Any]] = {
    "config": str,
    "master": str,
    "hostname-override": str,
    "cleanup": _boolean,
    "init-only": _boolean,
    "write-config-to": str,
    "healthz-port": int,
    "metrics-port": int,
    "v": int,
}

# Flags that upstream's proxy lacks.
MORE_FLAGS: dict[str, Callable[[str], Any]] = {tracing.ENDPOINT: str, tracing.RATE: int}

# flag -> field that it would set
IGNORED_FLAGS: dict[str, str] = {
    "kube-api-content-type": "clientConnection.contentType",
    "profiling": "enableProfiling",
    "show-hidden-metrics-for-version": "showHiddenMetricsForVersion",
    "config-sync-period": "configSyncPeriod",
    "log-flush-frequency": "logging.flushFrequency",
    **{
        f"log-{form}-{flag}": f"logging.options.{form}.{field}"
        for form in ("text", "json")
        for flag, field in (("split-stream", "splitStream"), ("info-buffer-size", "infoBufferSize"))
    },
    "ipvs-sync-period": "ipvs.syncPeriod",
    "ipvs-min-sync-period": "ipvs.minSyncPeriod",
    "ipvs-scheduler": "ipvs.scheduler",
    "ipvs-exclude-cidrs": "ipvs.excludeCIDRs",
    "ipvs-strict-arp": "ipvs.strictARP",
    "ipvs-tcp-timeout": "ipvs.tcpTimeout",
    "ipvs-tcpfin-timeout": "ipvs.tcpFinTimeout",
    "ipvs-udp-timeout": "ipvs.udpTimeout",
}

_SWITCHES = frozenset({"profiling", "ipvs-strict-arp", "log-text-split-stream", "log-json-split-stream"})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(message, obj="proxy", step="read the command line", action="See --help for the flags.")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        print(f"Kubernetes {KUBERNETES_VERSION}")
        parser.exit(0)


def parse_flags(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that were given, by name with dashes. Raises Invalid."""
    parser = _Parser(prog="proxy", description="Service proxy with kube-proxy's flags.", allow_abbrev=False)
    for name, (field, reader) in SETTING_FLAGS.items():
        _add(parser, name, reader, f"configuration field {field}")
    for name, reader in OWN_FLAGS.items():
        _add(parser, name, reader, "")
    for name, reader in MORE_FLAGS.items():
        _add(parser, name, reader, tracing.HELP[name])
    for name, field in IGNORED_FLAGS.items():
        _add(parser, name, _boolean if name in _SWITCHES else str, f"accepted and ignored: {instead(field)}")
    parser.add_argument("--version", action=_Version, nargs="?", help="print the Kubernetes version and exit")
    given = vars(parser.parse_args(list(argv)))
    return {name.replace("_", "-"): value for name, value in given.items() if value is not None}


def _add(parser: argparse.ArgumentParser, name: str, reader: Callable[[str], Any], text: str) -> None:
    names = [f"--{name}", "-v"] if name == "v" else [f"--{name}"]
    if reader is _boolean:
        parser.add_argument(*names, nargs="?", const=True, type=reader, help=text, metavar="BOOL")
    else:
        parser.add_argument(*names, type=reader, help=text, metavar="VALUE")
