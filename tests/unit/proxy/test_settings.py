"""The command line and the configuration file become settings, and what follows from them."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

import pytest

from nodelib.daemons.log import LogOptions
from nodelib.errors import Invalid
from nodelib.firewall.objects import Family
from nodelib.upstream.answers import facts
from proxy.app import main, rate_limit
from proxy.config import derive
from proxy.config.access import find_access
from proxy.config.file import API_VERSION, IGNORED, SUPPORTED, decode_config, instead, parse_duration
from proxy.config.flags import IGNORED_FLAGS, OWN_FLAGS, SETTING_FLAGS
from proxy.config.settings import ClientSettings, Listen, load_settings

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def config(folder: Path, text: str) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(HEAD + text)
    return [f"--config={path}"]


def test_defaults() -> None:
    settings = load_settings(["--hostname-override=Node-1"])
    assert (settings.node_name, settings.mode, settings.healthz) == ("node-1", "iptables", Listen("0.0.0.0", 10256))
    assert settings.metrics == Listen("127.0.0.1", 10249)
    assert (settings.rules.sync_period, settings.rules.min_sync_period) == (30.0, 0.02)
    assert settings.notices == ()


def test_what_kubeadm_writes(tmp_path: Path) -> None:
    text = """
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null,
   udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs:
  {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s,
   tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
"""
    settings = load_settings(config(tmp_path, text))
    assert settings.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    assert settings.local.cluster_cidrs == ("10.244.0.0/16",)
    assert settings.conntrack.max_per_core == 32768 and settings.conntrack.tcp_established_timeout == 86400
    assert not settings.notices


def test_file_before_flags(tmp_path: Path) -> None:
    argv = [
        *config(tmp_path, "clusterCIDR: 10.1.0.0/16\nhostnameOverride: a\n"),
        "--cluster-cidr=10.2.0.0/16",
        "--hostname-override=b",
        "-v=4",
    ]
    settings = load_settings(argv)
    assert (settings.local.cluster_cidrs, settings.node_name, settings.verbosity) == (("10.1.0.0/16",), "b", 4)
    assert settings.notices == ("--cluster-cidr is ignored: --config is given",)


def test_unsupported_fields_are_logged_once(tmp_path: Path) -> None:
    text = "enableProfiling: true\nclientConnection: {contentType: x}\nipvs: {scheduler: rr}\n"
    settings = load_settings(config(tmp_path, text))
    assert len(settings.notices) == 3 and all("not supported" in line for line in settings.notices)


def test_the_gate_of_streaming_lists_is_obeyed() -> None:
    assert load_settings([]).streaming_lists
    for given in ("WatchListClient=false", "AllBeta=false"):
        settings = load_settings([f"--feature-gates={given}"])
        assert not settings.streaming_lists and not settings.notices


def test_feature_gates_are_checked_as_upstream_does(tmp_path: Path) -> None:
    text = "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true, NFTablesNetlink: true}\n"
    settings = load_settings(config(tmp_path, text))
    (line,) = settings.notices
    assert line.startswith("featureGates.KubeProxyNFTablesLocalhostNodePorts has no effect here: ")
    assert settings.feature_gates == {"KubeProxyNFTablesLocalhostNodePorts": True, "NFTablesNetlink": True}
    for wrong in ("Frobnicate=true", "NFTablesProxyMode=false"):
        with pytest.raises(Invalid, match=wrong.partition("=")[0]):
            load_settings([f"--feature-gates={wrong}"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusterCidr: 10.0.0.0/8\n", "unknown field 'clusterCidr'"),
        ("iptables: {masqueradeBits: 4}\n", "unknown field 'iptables.masqueradeBits'"),
        ("iptables: {masqueradeBit: 32}\n", "masqueradeBit 32"),
        ("iptables: {masqueradeBit: yes}\n", "not an integer"),
        ("iptables: 5\n", "iptables is not a mapping"),
        ("iptables: {syncPeriod: soon}\n", "not a duration"),
        ("iptables: {syncPeriod: 1s, minSyncPeriod: 1m}\n", "minSyncPeriod '60s'"),
        ("mode: ipvs\n", "'ipvs' is not a mode"),
        ("clusterCIDR: 10.0.0.0/8,11.0.0.0/8\n", "one of IPv4 and one of IPv6"),
        ("detectLocalMode: BridgeInterface\n", "bridgeInterface"),
        ("detectLocalMode: Sometimes\n", "detectLocalMode 'Sometimes'"),
        ("nodePortAddresses: [primary, elsewhere]\n", "'elsewhere' is neither"),
        ("healthzBindAddress: localhost:1\n", "not IP:port"),
        ("bindAddress: here\n", "not an IP address"),
        ("conntrack: {maxPerCore: -1}\n", "negative"),
        ("oomScoreAdj: 2000\n", "within -1000 and 1000"),
        ("kind: Other\n", "given twice"),
        ("a: [\n", "read the configuration"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match="(?s)" + said.replace("[", r"\[").replace("(", r"\(")):
        load_settings(config(tmp_path, text))


@pytest.mark.parametrize(
    "argv",
    [
        ["--nope"],
        ["--proxy-mode=ipvs"],
        ["--iptables-sync-period=x"],
        ["--masquerade-all=perhaps"],
        ["--config=/nonexistent"],
    ],
)
def test_wrong_command_lines_end_with_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("proxy: ")


def test_flags() -> None:
    settings = load_settings(
        [
            "--masquerade-all",
            "--iptables-localhost-nodeports=false",
            "--nodeport-addresses=10.0.0.0/8,localhost",
            "--healthz-bind-address=127.0.0.1",
            "--metrics-port=0",
            "--bind-address=::",
            "--conntrack-max-per-core=0",
            "--ipvs-strict-arp",
        ]
    )
    assert settings.rules.masquerade_all and not settings.rules.localhost_node_ports
    assert settings.node_port_addresses == ("10.0.0.0/8", "localhost")
    assert (settings.healthz, settings.metrics) == (Listen("127.0.0.1", 10256), None)
    assert settings.conntrack.max_per_core == 0
    assert settings.notices == ("--ipvs-strict-arp is not used: there is no ipvs mode",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m30s", 90.0), ("250ms", 0.25), ("0", 0.0), ("1h", 3600.0), ("-1s", -1.0), (0, 0.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1", "1x", "1s2", None, True, 5])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("flags", "localhost"),
    [
        ([], True),
        (["--nodeport-addresses=primary"], False),
        (["--nodeport-addresses=primary,localhost"], True),
        (["--nodeport-addresses=10.0.0.0/8"], False),
        (["--nodeport-addresses=all"], True),
        (["--iptables-localhost-nodeports=false"], False),
    ],
)
def test_localhost_node_ports_only_where_loopback_is_among_the_addresses(flags: list[str], localhost: bool) -> None:
    assert derive.context(load_settings(flags), Family.IPV4).localhost_node_ports is localhost


def test_detectors() -> None:
    def words(*flags: str) -> tuple[str, ...]:
        return derive.context(load_settings(flags), Family.IPV4).detector.if_local

    assert words("--cluster-cidr=fd00::/64,10.0.0.0/8") == ("-s", "10.0.0.0/8")
    assert words("--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0") == ("-i", "br0")
    assert words("--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth") == ("-i", "veth+")
    assert words("--detect-local-mode=NodeCIDR") == words() == ()


def test_access() -> None:
    assert find_access("", "http://127.0.0.1:8080/", {}).server == "http://127.0.0.1:8080"
    with pytest.raises(Invalid, match="neither a kubeconfig nor"):
        find_access("", "", {})


def test_every_field_and_flag_of_upstream_is_obeyed_or_answered() -> None:
    upstream = facts("kube-proxy")
    assert {one["path"] for one in upstream["fields"]} == set(SUPPORTED) | set(IGNORED)
    known = {*SETTING_FLAGS, *OWN_FLAGS, *IGNORED_FLAGS}
    assert {one["name"] for one in upstream["flags"]} - {"version"} == known
    assert all(instead(field) for field in IGNORED)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_is_not_obeyed_is_answered_by_one_line(name: str) -> None:
    section, _, leaf = name.rpartition(".")
    samples: list[object] = ["1s", "x", True, ["10.0.0.0/8"], 3]
    notices = []
    for sample in samples:
        inner: object = {leaf: sample}
        content = {"apiVersion": API_VERSION, "kind": "KubeProxyConfiguration"}
        with contextlib.suppress(Invalid):
            notices.append(decode_config({**content, **({section: inner} if section else inner)}, "f")[1])  # type: ignore[dict-item]
    assert any(len(lines) == 1 and name in lines[0] for lines in notices)


def test_a_field_given_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "mode: iptables\nmode: nftables\n")
    with pytest.raises(Invalid, match="given twice"):
        load_settings(["--config", str(path)])


def test_version_is_the_one_that_is_followed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(["--version"])
    assert capsys.readouterr().out == "Kubernetes v1.37.1\n"


def test_sysctls_that_the_rules_and_connection_tracking_want() -> None:
    wanted = derive.sysctls(load_settings(["--conntrack-max-per-core=1000", "--conntrack-min=10"]), cpus=4)
    assert wanted["net/netfilter/nf_conntrack_max"] == 4000
    assert derive.ROUTE_LOCALNET not in wanted, "the rule that guards it comes first"
    assert derive.sysctls(load_settings([]), cpus=1 << 20)["net/netfilter/nf_conntrack_max"] == 1 << 20
    assert derive.ROUTE_LOCALNET not in derive.sysctls(load_settings(["--proxy-mode=nftables"]), cpus=1)


def test_node_ports_are_on_the_primary_address_in_nftables_mode() -> None:
    def at(*flags: str, ips: tuple[str, ...] = ("192.0.2.7",)) -> tuple[str, ...] | None:
        return derive.node_port_networks(load_settings(list(flags)), Family.IPV4, ips)

    assert at() is None
    assert at("--proxy-mode=nftables") == ("192.0.2.7/32",)
    assert at("--proxy-mode=nftables", ips=("2001:db8::7",)) == ()
    assert at("--proxy-mode=nftables", "--nodeport-addresses=0.0.0.0/0") == ("0.0.0.0/0",)


@pytest.mark.parametrize(
    ("text", "qps", "burst"),
    [
        pytest.param("", 0, 0, id="no limit"),
        pytest.param("clientConnection: {qps: 2.5, burst: 4}\n", 2.5, 4, id="both"),
        pytest.param("clientConnection: {qps: 3}\n", 3, 10, id="upstream's burst"),
        pytest.param("clientConnection: {burst: 3}\n", 5, 3, id="upstream's rate"),
        pytest.param("clientConnection: {qps: -1, burst: 3}\n", -1, 3, id="without limit in upstream's words"),
    ],
)
def test_requests_are_limited_as_asked(tmp_path: Path, text: str, qps: float, burst: int) -> None:
    settings = load_settings(config(tmp_path, text))
    assert (settings.requests.qps, settings.requests.burst) == (qps, burst) and not settings.notices
    assert (rate_limit(settings.requests) is None) == (qps <= 0)


async def test_the_limit_is_the_one_asked_for() -> None:
    limit = rate_limit(ClientSettings(1000, 2))
    assert limit is not None
    assert [await limit.wait() for _ in range(2)] == [0, 0] and 0 < await limit.wait() <= 0.001


def test_logging_of_the_file_and_of_flags(tmp_path: Path) -> None:
    text = "logging: {format: text, verbosity: 2, vmodule: [{filePattern: sync, verbosity: 5}]}\n"
    settings = load_settings(config(tmp_path, text))
    assert settings.logging == LogOptions(2, "text", (("sync", 5),)) and not settings.notices
    again = load_settings([*config(tmp_path, "logging: {verbosity: 1}\n"), "--logging-format=json", "-v=4"])
    assert again.logging == LogOptions(4, "json") and not again.notices
    assert load_settings(["--hostname-override=n", "--vmodule=a*=4,b=6"]).vmodule == (("a*", 4), ("b", 6))


@pytest.mark.parametrize(
    "text",
    [
        "logging: {format: yaml}\n",
        "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n",
        "logging: {format: json}\nfeatureGates: {LoggingBetaOptions: false}\n",
        "logging: {vmodule: [{filePattern: 'a=', verbosity: 1}]}\n",
        "logging: {vmodule: {a: 1}}\n",
        "clientConnection: {qps: many}\n",
        "clientConnection: {qps: .inf}\n",
        "clientConnection: {burst: -1}\n",
    ],
)
def test_bad_logging_and_limits_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid):
        load_settings(config(tmp_path, text))


def test_the_log_has_the_form_that_was_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    written = main(["--hostname-override=n1", "--logging-format=json", f"--write-config-to={tmp_path}/none/x"])
    (line,) = capfd.readouterr().err.splitlines()
    assert written == 1 and json.loads(line)["level"] == "error"


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_each_mode_has_a_section_of_its_own(tmp_path: Path, mode: str) -> None:
    other = {"iptables": "nftables", "nftables": "iptables"}[mode]
    text = (
        f"mode: {mode}\n{mode}: {{masqueradeBit: 7, masqueradeAll: true, syncPeriod: 9s, minSyncPeriod: 2s}}\n"
        f"{other}: {{masqueradeBit: 8, masqueradeAll: false, syncPeriod: 8s, minSyncPeriod: 3s}}\n"
    )
    settings = load_settings(config(tmp_path, text))
    rules = settings.rules
    assert (settings.mode, rules.masquerade_bit, rules.masquerade_all) == (mode, 7, True)
    assert (rules.sync_period, rules.min_sync_period) == (9, 2)


def test_ports_and_the_server_of_flags() -> None:
    settings = load_settings(["--healthz-port=1234", "--master=http://h:1/", "-v=3", "--bind-address=::1"])
    assert settings.healthz == Listen("::", 1234) and settings.metrics == Listen("::1", 10249)
    assert (settings.master, settings.verbosity) == ("http://h:1/", 3)
    assert find_access("", settings.master, {}).server == "http://h:1"
