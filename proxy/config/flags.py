"""kube-proxy's command line (cmd/kube-proxy/app/options.go): names, types, and the field that each flag sets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from nodelib.errors import Invalid
from nodelib.version import KUBERNETES_VERSION
from proxy.config.file import IGNORED, parse_duration


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


# flag -> field of the configuration file
SETTING_FLAGS: dict[str, tuple[str, Callable[[str], Any]]] = {
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
}

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

IGNORED_FLAGS: dict[str, str] = {
    "feature-gates": IGNORED["featureGates"][1],
    "kube-api-content-type": IGNORED["clientConnection.contentType"][1],
    "kube-api-qps": IGNORED["clientConnection.qps"][1],
    "kube-api-burst": IGNORED["clientConnection.burst"][1],
    "profiling": IGNORED["enableProfiling"][1],
    "show-hidden-metrics-for-version": IGNORED["showHiddenMetricsForVersion"][1],
    "config-sync-period": IGNORED["configSyncPeriod"][1],
    "logging-format": IGNORED["logging.format"][1],
    "log-flush-frequency": IGNORED["logging.flushFrequency"][1],
    "vmodule": IGNORED["logging.vmodule"][1],
    "ipvs-sync-period": "there is no ipvs mode",
    "ipvs-min-sync-period": "there is no ipvs mode",
    "ipvs-scheduler": "there is no ipvs mode",
    "ipvs-exclude-cidrs": "there is no ipvs mode",
    "ipvs-strict-arp": "there is no ipvs mode",
    "ipvs-tcp-timeout": "there is no ipvs mode",
    "ipvs-tcpfin-timeout": "there is no ipvs mode",
    "ipvs-udp-timeout": "there is no ipvs mode",
}

_SWITCHES = frozenset({"profiling", "ipvs-strict-arp"})


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
    for name, instead in IGNORED_FLAGS.items():
        _add(parser, name, _boolean if name in _SWITCHES else str, f"accepted and ignored: {instead}")
    parser.add_argument("--version", action=_Version, nargs="?", help="print the Kubernetes version and exit")
    given = vars(parser.parse_args(list(argv)))
    return {name.replace("_", "-"): value for name, value in given.items() if value is not None}


def _add(parser: argparse.ArgumentParser, name: str, reader: Callable[[str], Any], text: str) -> None:
    names = [f"--{name}", "-v"] if name == "v" else [f"--{name}"]
    if reader is _boolean:
        parser.add_argument(*names, nargs="?", const=True, type=reader, help=text, metavar="BOOL")
    else:
        parser.add_argument(*names, type=reader, help=text, metavar="VALUE")
