"""DNS of pods: every policy, dnsConfig on top, limits."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.pod_settings import PodDefaults
from agent.containers.plan.dns import Dns, parse_resolv_conf, pod_dns
from tests.builders.pods import pod

SETTINGS = PodDefaults("n1", cluster_dns=("10.96.0.10",))
HOST = Dns(("192.0.2.1",), ("corp.example",), ("timeout:2",))
CLUSTER = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example")


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        pytest.param({}, ("10.96.0.10",), CLUSTER, ("ndots:5",), id="ClusterFirst"),
        pytest.param({"dnsPolicy": "Default"}, HOST.servers, HOST.searches, HOST.options, id="Default"),
        pytest.param({"hostNetwork": True}, HOST.servers, HOST.searches, HOST.options, id="ClusterFirst, host network"),
        pytest.param(
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            ("10.96.0.10",),
            CLUSTER,
            ("ndots:5",),
            id="ClusterFirstWithHostNet",
        ),
        pytest.param({"dnsPolicy": "None"}, (), (), (), id="None"),
        pytest.param(
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["1.1.1.1", "1.1.1.1"],
                    "searches": ["a.example"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            ("1.1.1.1",),
            ("a.example",),
            ("ndots:2", "edns0"),
            id="None with dnsConfig",
        ),
        pytest.param(
            {
                "dnsConfig": {
                    "nameservers": ["1.1.1.1"],
                    "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}],
                }
            },
            ("10.96.0.10", "1.1.1.1"),
            CLUSTER,
            ("ndots:3", "debug"),
            id="dnsConfig merges",
        ),
    ],
)
def test_policies(
    spec: dict[str, Any], servers: tuple[str, ...], searches: tuple[str, ...], options: tuple[str, ...]
) -> None:
    assert pod_dns(pod(**spec), SETTINGS, HOST) == Dns(servers, searches, options)


def test_without_cluster_dns_it_falls_back_and_warns() -> None:
    made = pod_dns(pod(), PodDefaults("n1"), HOST)
    assert (made.servers, made.searches) == (HOST.servers, HOST.searches)
    assert [reason for reason, _ in made.warnings] == ["MissingClusterDNS"]


@pytest.mark.parametrize(
    ("ips", "servers"), [((), ("127.0.0.1",)), (("10.0.0.1", "fd00::1"), ("127.0.0.1", "::1"))], ids=["none", "dual"]
)
def test_no_resolver_file_means_localhost(ips: tuple[str, ...], servers: tuple[str, ...]) -> None:
    made = pod_dns(pod(dnsPolicy="Default"), PodDefaults("n1", resolv_conf=""), Dns(), ips)
    assert made.as_cri() == {"servers": list(servers), "searches": ["."], "options": []}


def test_limits_cut_and_warn() -> None:
    config = {
        "nameservers": [f"10.0.0.{n}" for n in range(5)],
        "searches": ["x" * 300, *(f"{'d' * 60}{n}.example" for n in range(40))],
    }
    made = pod_dns(pod(dnsPolicy="None", dnsConfig=config), SETTINGS, HOST)
    assert made.servers == ("10.0.0.0", "10.0.0.1", "10.0.0.2")
    assert len(" ".join(made.searches)) <= 2048
    assert "x" * 300 not in made.searches
    assert [reason for reason, _ in made.warnings] == ["DNSConfigForming"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", Dns(), id="empty"),
        pytest.param("nameserver 1.2.3.4\nnameserver  fd00::1 \n", Dns(("1.2.3.4", "fd00::1")), id="servers add up"),
        pytest.param("nameserver\n", Dns(), id="server without address"),
        pytest.param("search a b.\nsearch c. .\n", Dns(searches=("c",)), id="last search wins, dots cut"),
        pytest.param("options ndots:1 debug\noptions ndots:3", Dns(options=("ndots:3", "debug")), id="options merge"),
        pytest.param("# nameserver 1.1.1.1\n;x\ndomain d\n", Dns(), id="comments"),
        pytest.param("#comment\nnameserver 1.1.1.1 # trailing", Dns(("1.1.1.1",)), id="trailing comment"),
    ],
)
def test_resolv_conf(text: str, expected: Dns) -> None:
    assert parse_resolv_conf(text) == expected
