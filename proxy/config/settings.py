"""The proxy's settings, frozen, read from the command line and the configuration file. All times are seconds.

As upstream: with --config the other setting flags are ignored, except --hostname-override and -v; the log names each
flag that is ignored.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodelib.daemons.log import JSON, TEXT, LogOptions
from nodelib.errors import Invalid
from nodelib.text_numbers import is_number
from nodelib.traces import settings as tracing
from nodelib.traces.settings import OFF, TracingSettings, tracing_settings
from nodelib.upstream import answers, gates
from proxy.config.file import instead, read_config
from proxy.config.flags import IGNORED_FLAGS, LOG_FLAGS, SETTING_FLAGS, parse_flags
from proxy.plan.addresses import parse_cidr, parse_ip

MODES = ("iptables", "nftables", "userspace")
DETECT_MODES = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
NODE_PORT_KEYWORDS = ("primary", "localhost", "all")
HEALTHZ_PORT, METRICS_PORT = 10256, 10249
_JSON_GATE = "LoggingBetaOptions"  # of logging.format json
_STREAMS_GATE = "WatchListClient"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """`min_sync_period`: 20 ms instead of upstream's 1 s, because partial syncs take milliseconds here."""

    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: float = 30.0
    min_sync_period: float = 0.02


@dataclass(frozen=True, slots=True)
class ConntrackSettings:
    """0 leaves the kernel's value as it is."""

    max_per_core: int = 32 * 1024
    minimum: int = 128 * 1024
    tcp_established_timeout: float = 86400.0
    tcp_close_wait_timeout: float = 3600.0
    tcp_be_liberal: bool = False
    udp_timeout: float = 0.0
    udp_stream_timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """How traffic of local pods is recognized (upstream detectLocalMode)."""

    mode: str = "ClusterCIDR"
    cluster_cidrs: tuple[str, ...] = ()
    bridge: str = ""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Requests to the API server: so many a second after `burst` at once, watches apart. `qps` 0 or less: no limit.

    Upstream takes 0 for 5 a second after 10 at once; here nothing is limited that nobody asked to be.
    """

    qps: float = 0.0
    burst: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one proxy. `streaming_lists`: see KubeClient; `notices`: lines to log at the start."""

    node_name: str
    kubeconfig: str = ""
    master: str = ""
    mode: str = "iptables"
    healthz: Listen | None = Listen("0.0.0.0", HEALTHZ_PORT)
    metrics: Listen | None = Listen("127.0.0.1", METRICS_PORT)
    bind_hard_fail: bool = False
    local: LocalSettings = LocalSettings()
    node_port_addresses: tuple[str, ...] = ()
    oom_score_adj: int = -999
    rules: RuleSettings = RuleSettings()
    conntrack: ConntrackSettings = ConntrackSettings()
    verbosity: int = 0
    log_format: str = TEXT
    vmodule: tuple[tuple[str, int], ...] = ()
    requests: ClientSettings = ClientSettings()
    tracing: TracingSettings = OFF
    cleanup: bool = False
    init_only: bool = False
    write_config_to: str = ""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    streaming_lists: bool = True
    notices: tuple[str, ...] = field(default=())

    @property
    def logging(self) -> LogOptions:
        """How much is logged, and in which form."""
        return LogOptions(self.verbosity, self.log_format, self.vmodule)


def load_settings(argv: Sequence[str]) -> Settings:
    """Settings from the command line (and the file that it names). Raises Invalid, naming the flag or the field."""
    flags = parse_flags(argv)
    notices = [f"--{name} is not used: {instead(IGNORED_FLAGS[name])}" for name in flags if name in IGNORED_FLAGS]
    setting_flags = [name for name in flags if name in SETTING_FLAGS]
    if "config" in flags:
        values, file_notices = read_config(flags["config"])
        notices.extend(file_notices)
        notices.extend([f"--{name} is ignored: --config is given" for name in setting_flags if name not in LOG_FLAGS])
        values.update({SETTING_FLAGS[name][0]: flags[name] for name in LOG_FLAGS if name in flags})
    else:
        values = {SETTING_FLAGS[name][0]: flags[name] for name in setting_flags}
    notices.extend(_gate_notices(values.get("featureGates") or {}))
    return _settings(values, flags, tuple(notices))


def _gate_notices(given: Mapping[str, bool]) -> list[str]:
    """A line for each gate that changes nothing. Raises Invalid for those with which upstream would not start."""
    for name, problem in gates.problems(given, answers.gates()):
        raise _bad(f"featureGates.{name}", _shown(given.get(name)), problem)
    return list(gates.notices(given, answers.gates(), answers.gate_answers(), (_JSON_GATE, _STREAMS_GATE)))


def _is_on(values: Mapping[str, Any], gate: str) -> bool:
    return gates.enabled(values.get("featureGates") or {}, answers.gates())[gate]


def _shown(on: bool | None) -> str:
    return "" if on is None else str(on).lower()


def _settings(values: Mapping[str, Any], flags: Mapping[str, Any], notices: tuple[str, ...]) -> Settings:
    bind = str(values.get("bindAddress") or "0.0.0.0")
    if parse_ip(bind) is None:
        raise _bad("bindAddress", bind, "is not an IP address")
    any_host, loopback = ("::", "::1") if ":" in bind else ("0.0.0.0", "127.0.0.1")
    mode = _mode(values.get("mode"))
    healthz = _listen("healthzBindAddress", values, Listen(any_host, HEALTHZ_PORT))
    metrics = _listen("metricsBindAddress", values, Listen(loopback, METRICS_PORT))
    return Settings(
        node_name=_node_name(flags.get("hostname-override"), values.get("hostnameOverride")),
        kubeconfig=str(values.get("clientConnection.kubeconfig") or ""),
        master=str(flags.get("master") or ""),
        mode=mode,
        healthz=_with_port(healthz, flags.get("healthz-port")),
        metrics=_with_port(metrics, flags.get("metrics-port")),
        bind_hard_fail=bool(values.get("bindAddressHardFail")),
        local=_local(values),
        node_port_addresses=_node_port_addresses(values.get("nodePortAddresses") or ()),
        oom_score_adj=_within("oomScoreAdj", values.get("oomScoreAdj", -999), -1000, 1000),
        rules=_rules(values, mode, from_file="config" in flags),
        conntrack=_conntrack(values),
        verbosity=int(flags.get("v", values.get("logging.verbosity", 0))),
        log_format=_log_format(values),
        vmodule=values.get("logging.vmodule") or (),
        requests=_requests(values),
        tracing=tracing_settings(flags.get(tracing.ENDPOINT) or "", flags.get(tracing.RATE) or 0, "proxy"),
        cleanup=bool(flags.get("cleanup")),
        init_only=bool(flags.get("init-only")),
        write_config_to=str(flags.get("write-config-to") or ""),
        feature_gates=values.get("featureGates") or {},
        streaming_lists=_is_on(values, _STREAMS_GATE),
        notices=notices,
    )


def _log_format(values: Mapping[str, Any]) -> str:
    """k8s.io/component-base/logs/api/v1 Validate."""
    form = str(values.get("logging.format") or TEXT)
    if form == JSON and values.get("logging.vmodule"):
        raise _bad("logging.vmodule", values["logging.vmodule"], "is only for logging.format text")
    if form == JSON and not _is_on(values, _JSON_GATE):
        raise _bad("logging.format", form, f"needs featureGates.{_JSON_GATE}")
    return form


def _requests(values: Mapping[str, Any]) -> ClientSettings:
    qps, burst = values.get("clientConnection.qps") or 0.0, values.get("clientConnection.burst") or 0
    if burst < 0:
        raise _bad("clientConnection.burst", burst, "is negative")
    return ClientSettings(qps or (5.0 if burst else 0.0), burst or (10 if qps else 0))


def _node_name(flag: object, field_value: object) -> str:
    name = str(flag or field_value or socket.gethostname()).strip().lower()
    if not name:
        raise _bad("hostnameOverride", name, "is empty")
    return name


def _mode(given: object) -> str:
    mode = str(given or "iptables")
    if mode not in MODES:
        raise _bad("mode", mode, f"is not a mode of this proxy (there is: {', '.join(MODES)})")
    return mode


def _local(values: Mapping[str, Any]) -> LocalSettings:
    mode = str(values.get("detectLocalMode") or "ClusterCIDR")
    if mode not in DETECT_MODES:
        raise _bad("detectLocalMode", mode, f"is not one of {', '.join(DETECT_MODES)}")
    cidrs = []
    for text in [part.strip() for part in str(values.get("clusterCIDR") or "").split(",") if part.strip()]:
        network = parse_cidr(text)
        if network is None:
            raise _bad("clusterCIDR", text, "is not a CIDR")
        cidrs.append(str(network))
    if len(cidrs) > 2 or len({":" in cidr for cidr in cidrs}) != len(cidrs):
        raise _bad("clusterCIDR", ",".join(cidrs), "is not one CIDR, or one of IPv4 and one of IPv6")
    bridge, prefix = (
        str(values.get(f"detectLocal.{name}") or "") for name in ("bridgeInterface", "interfaceNamePrefix")
    )
    if mode == "BridgeInterface" and not bridge:
        raise _bad("detectLocal.bridgeInterface", "", "is needed by detectLocalMode BridgeInterface")
    if mode == "InterfaceNamePrefix" and not prefix:
        raise _bad("detectLocal.interfaceNamePrefix", "", "is needed by detectLocalMode InterfaceNamePrefix")
    return LocalSettings(mode, tuple(cidrs), bridge, prefix)


def _rules(values: Mapping[str, Any], mode: str, *, from_file: bool) -> RuleSettings:
    """Settings of the mode's section in the file. The flags are named after iptables and hold for every mode."""
    default = RuleSettings()
    section = "nftables" if mode == "nftables" and from_file else "iptables"

    def given(name: str, otherwise: Any) -> Any:
        return values.get(f"{section}.{name}", otherwise)

    # 0 means the default, as in upstream's defaulting: kubeadm writes 0s.
    period = given("syncPeriod", 0) or default.sync_period
    minimum = given("minSyncPeriod", 0) or default.min_sync_period
    if period < 0 or minimum < 0 or minimum > period:
        raise _bad(f"{section}.minSyncPeriod", f"{minimum:g}s", f"is not between 0 and syncPeriod ({period:g}s)")
    return RuleSettings(
        masquerade_bit=_within(f"{section}.masqueradeBit", given("masqueradeBit", 14), 0, 31),
        masquerade_all=bool(given("masqueradeAll", False)),
        localhost_node_ports=bool(values.get("iptables.localhostNodePorts", True)),
        sync_period=period,
        min_sync_period=minimum,
    )


def _conntrack(values: Mapping[str, Any]) -> ConntrackSettings:
    default = ConntrackSettings()
    settings = ConntrackSettings(
        max_per_core=values.get("conntrack.maxPerCore", default.max_per_core),
        minimum=values.get("conntrack.min", default.minimum),
        tcp_established_timeout=values.get("conntrack.tcpEstablishedTimeout", default.tcp_established_timeout),
        tcp_close_wait_timeout=values.get("conntrack.tcpCloseWaitTimeout", default.tcp_close_wait_timeout),
        tcp_be_liberal=values.get("conntrack.tcpBeLiberal", False),
        udp_timeout=values.get("conntrack.udpTimeout", 0.0),
        udp_stream_timeout=values.get("conntrack.udpStreamTimeout", 0.0),
    )
    for name in ("max_per_core", "minimum", "tcp_established_timeout", "tcp_close_wait_timeout", "udp_timeout"):
        if getattr(settings, name) < 0:
            raise _bad(f"conntrack ({name})", getattr(settings, name), "is negative")
    return settings


def _node_port_addresses(given: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for text in given:
        if text in NODE_PORT_KEYWORDS:
            found.append(text)
            continue
        network = parse_cidr(text)
        if network is None:
            raise _bad("nodePortAddresses", text, f"is neither a CIDR nor one of {', '.join(NODE_PORT_KEYWORDS)}")
        found.append(str(network))
    return tuple(found)


def _listen(name: str, values: Mapping[str, Any], default: Listen) -> Listen:
    text = str(values.get(name) or "")
    if not text:
        return default
    if parse_ip(text.strip("[]")) is not None:
        return Listen(text.strip("[]"), default.port)
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if parse_ip(host) is None or not is_number(port) or not 0 < int(port) < 65536:
        raise _bad(name, text, "is not IP:port")
    return Listen(str(ipaddress.ip_address(host)), int(port))


def _with_port(listen: Listen, port: object) -> Listen | None:
    """Apply --healthz-port or --metrics-port, deprecated upstream: 0 switches the server off."""
    if port is None:
        return listen
    return Listen(listen.host, int(str(port))) if port else None


def _within(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise _bad(name, value, f"is not within {low} and {high}")
    return value


def _bad(name: str, value: object, why: str) -> Invalid:
    return Invalid(
        f"{name} {value!r} {why}",
        obj="proxy",
        step="read the configuration",
        action="Correct the field of the file in --config, or the flag of that meaning (--help).",
    )
