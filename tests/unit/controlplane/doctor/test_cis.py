"""Every control of the CIS benchmark for worker nodes: a node that passes all, and one that fails each."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from controlplane.doctor.model import FileFact, NodeFacts, ProxyFacts
from controlplane.doctor.plan.cis import CONTROLS, ControlFinding, judge
from nodelib.ciphers import STRONG_CIPHERS


def private(path: str) -> tuple[FileFact, ...]:
    return (FileFact(path, 0o600),)


CONFIG: dict[str, Any] = {
    "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}},
    "authorization": {"mode": "Webhook"},
    "readOnlyPort": 0,
    "streamingConnectionIdleTimeout": "4h0m0s",
    "makeIPTablesUtilChains": True,
    "eventRecordQPS": 50,
    "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt",
    "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
    "rotateCertificates": True,
    "tlsCipherSuites": list(STRONG_CIPHERS),
    "podPidsLimit": 4096,
    "seccompDefault": True,
}
GOOD = NodeFacts(
    node="node1",
    flags={"config": "/etc/kubernetes/kubelet.yaml", "kubeconfig": "/etc/kubernetes/kubelet.conf"},
    configuration=CONFIG,
    source="/configz",
    starts=private("/var/lib/nodewright/lab/node1/supervisor/spec.json"),
    kubeconfig=private("/etc/kubernetes/kubelet.conf"),
    configs=private("/etc/kubernetes/kubelet.yaml"),
    authorities=private("/etc/kubernetes/pki/ca.crt"),
    proxy=ProxyFacts(private("/etc/kubernetes/proxy.conf"), listening=("127.0.0.1:10249",)),
)


def configured(path: str, found: Any) -> NodeFacts:
    """GOOD with another value of a field; None: absent."""
    config = copy.deepcopy(CONFIG)
    *parents, last = path.split(".")
    place = config
    for name in parents:
        place = place.setdefault(name, {})
    if found is None:
        place.pop(last, None)
    else:
        place[last] = found
    return replace(GOOD, configuration=config)


def finding(facts: NodeFacts, control: str) -> ControlFinding:
    return next(one for one in judge(facts) if one.control == control)


def test_the_list_is_the_benchmark_s() -> None:
    wanted = [f"4.1.{n}" for n in range(1, 11)] + [f"4.2.{n}" for n in range(1, 15)] + ["4.3.1"]
    assert list(CONTROLS) == wanted


def test_a_good_node_passes_every_control_and_says_with_what() -> None:
    found = judge(GOOD)
    assert [one.control for one in found if one.status != "pass"] == []
    assert all(one.finding and one.title and not one.fix for one in found)


LOOSE, FOREIGN = 0o644, 1000
FAILING: list[tuple[str, NodeFacts, str, str]] = [
    ("4.1.1", replace(GOOD, starts=(FileFact("/etc/u", LOOSE),)), "/etc/u has mode 0644", "chmod 600 /etc/u"),
    ("4.1.2", replace(GOOD, starts=(FileFact("/etc/u", uid=FOREIGN),)), "belongs to 1000:0", "chown root:root /etc/u"),
    (
        "4.1.3",
        replace(GOOD, proxy=ProxyFacts((FileFact("/etc/p", 0o640),))),
        "/etc/p has mode 0640",
        "chmod 600 /etc/p",
    ),
    ("4.1.4", replace(GOOD, proxy=ProxyFacts((FileFact("/etc/p", gid=FOREIGN),))), "0:1000", "chown root:root /etc/p"),
    ("4.1.5", replace(GOOD, kubeconfig=(FileFact("/etc/k", 0o604),)), "/etc/k has mode 0604", "chmod 600 /etc/k"),
    ("4.1.6", replace(GOOD, kubeconfig=(FileFact("/etc/k", 0o600, 1, 1),)), "belongs to 1:1", "chown root:root /etc/k"),
    ("4.1.7", replace(GOOD, authorities=(FileFact("/ca", 0o664),)), "/ca has mode 0664", "chmod 644 /ca"),
    ("4.1.8", replace(GOOD, authorities=(FileFact("/ca", 0o600, 7),)), "belongs to 7:0", "chown root:root /ca"),
    (
        "4.1.9",
        replace(GOOD, configs=(FileFact("/a", 0o600), FileFact("/b", 0o644), FileFact("/c", 0o700))),
        "/b has mode 0644; /c has mode 0700",
        "chmod 600 /b /c",
    ),
    ("4.1.10", replace(GOOD, configs=(FileFact("/a", 0o600, 5),)), "belongs to 5:0", "chown root:root /a"),
    ("4.2.1", configured("authentication.anonymous.enabled", True), "true", "authentication.anonymous.enabled: false"),
    ("4.2.2", configured("authorization.mode", "AlwaysAllow"), "AlwaysAllow", "authorization.mode: Webhook"),
    ("4.2.2", configured("authorization.mode", None), "not set", "authorization.mode: Webhook"),
    ("4.2.3", configured("authentication.x509.clientCAFile", ""), "not set", "clientCAFile: /etc/kubernetes/pki"),
    ("4.2.4", configured("readOnlyPort", 10255), "10255", "readOnlyPort: 0"),
    ("4.2.5", configured("streamingConnectionIdleTimeout", "0s"), "0s", "streamingConnectionIdleTimeout: 4h"),
    ("4.2.5", configured("streamingConnectionIdleTimeout", "0h0m0s"), "0h0m0s", "4h0m0s"),
    ("4.2.6", configured("makeIPTablesUtilChains", False), "false", "makeIPTablesUtilChains: true"),
    ("4.2.7", replace(GOOD, flags={"hostname-override": "other"}), "--hostname-override=other", "hostnamectl"),
    ("4.2.8", configured("eventRecordQPS", 0), "eventRecordQPS: 0", "eventRecordQPS: 50"),
    ("4.2.9", configured("tlsPrivateKeyFile", ""), "only one", "tlsCertFile and tlsPrivateKeyFile"),
    ("4.2.10", configured("rotateCertificates", False), "false", "rotateCertificates: true"),
    ("4.2.10", configured("rotateCertificates", None), "false", "rotateCertificates: true"),
    ("4.2.11", configured("featureGates.RotateKubeletServerCertificate", False), "false", "Remove the gate"),
    ("4.2.12", configured("tlsCipherSuites", ["TLS_RSA_WITH_AES_128_CBC_SHA"]), "_CBC_SHA", "tlsCipherSuites: ["),
    ("4.2.12", configured("tlsCipherSuites", None), "not set", "tlsCipherSuites: ["),
    ("4.2.13", configured("podPidsLimit", -1), "-1", "podPidsLimit: 4096"),
    ("4.2.13", configured("podPidsLimit", None), "-1", "podPidsLimit: 4096"),
    ("4.2.14", configured("seccompDefault", None), "unconfined", "seccompDefault: true"),
    (
        "4.3.1",
        replace(GOOD, proxy=ProxyFacts(private("/p"), listening=("127.0.0.1:10249", "0.0.0.0:10249"))),
        "0.0.0.0:10249",
        "metricsBindAddress",
    ),
    ("4.3.1", replace(GOOD, proxy=ProxyFacts(private("/p"), metrics="0.0.0.0:10249")), "0.0.0.0", "metricsBindAddress"),
    ("4.3.1", replace(GOOD, proxy=ProxyFacts(private("/p"), listening=("[::]:10249",))), "[::]", "metricsBindAddress"),
]


@pytest.mark.parametrize(
    ("control", "facts", "words", "fix"), FAILING, ids=[f"{row[0]}-{row[2]}".replace("/", "_") for row in FAILING]
)
def test_a_failing_node_is_named_with_what_to_do(control: str, facts: NodeFacts, words: str, fix: str) -> None:
    found = finding(facts, control)
    assert found.status == "fail" and words in found.finding and fix in found.fix
    assert {one.control for one in judge(facts) if one.status == "fail"} == {control}


def test_every_control_has_a_failing_finding_above() -> None:
    assert {row[0] for row in FAILING} == set(CONTROLS)


def test_neither_of_the_pair_and_no_certificate_of_its_own_fails() -> None:
    facts = configured("tlsCertFile", "")
    facts = replace(facts, configuration={**facts.configuration, "tlsPrivateKeyFile": ""})
    assert finding(facts, "4.2.9").status == "fail"
    own = private("/var/lib/kubelet/pki/kubelet.crt")
    assert "self-signed" in finding(replace(facts, serving=own), "4.2.9").finding
    bootstrapped = replace(facts, serving=own, configuration={**facts.configuration, "serverTLSBootstrap": True})
    assert "serverTLSBootstrap: true" in finding(bootstrapped, "4.2.9").finding


@pytest.mark.parametrize(
    ("facts", "controls", "why"),
    [
        pytest.param(
            replace(GOOD, unknown="/configz: forbidden", configuration={}, authorities=()),
            {"4.1.7", "4.1.8", *(f"4.2.{n}" for n in range(1, 15) if n != 7)},
            "/configz: forbidden",
            id="configuration",
        ),
        pytest.param(
            replace(GOOD, kubeconfig=(FileFact("/k", problem="No such file or directory"),)),
            {"4.1.5", "4.1.6"},
            "No such file",
            id="file",
        ),
        pytest.param(replace(GOOD, starts=()), {"4.1.1", "4.1.2"}, "unit file", id="started by hand"),
        pytest.param(
            replace(GOOD, proxy=ProxyFacts(problem="/p.yaml: not YAML")),
            {"4.1.3", "4.1.4", "4.3.1"},
            "not YAML",
            id="proxy",
        ),
    ],
)
def test_what_cannot_be_judged_says_so_and_why(facts: NodeFacts, controls: set[str], why: str) -> None:
    found = [one for one in judge(facts) if one.status == "unknown"]
    assert {one.control for one in found} == controls
    assert all(why in one.finding for one in found)


@pytest.mark.parametrize(
    "proxy",
    [pytest.param(None, id="none runs"), pytest.param(ProxyFacts(in_pod=True, listening=("[::1]:10249",)), id="pod")],
)
def test_a_proxy_without_a_file_of_its_own(proxy: ProxyFacts | None) -> None:
    facts = replace(GOOD, proxy=proxy)
    assert {finding(facts, control).status for control in ("4.1.3", "4.1.4", "4.3.1")} == {"pass"}


def test_a_proxy_whose_metrics_are_off_is_judged_by_its_configuration() -> None:
    found = finding(replace(GOOD, proxy=ProxyFacts(private("/p"))), "4.3.1")
    assert found.status == "pass" and "nothing listens" in found.finding
