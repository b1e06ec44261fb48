"""Service objects are read into service ports, and malformed parts are left out."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.addresses import parse_cidr, parse_ip
from proxy.plan.services import parse_service
from tests.builders.services import service

V4, V6 = Family.IPV4, Family.IPV6


def ports_of(obj: Json, family: Family = V4) -> list[str]:
    ports, problems = parse_service(obj, family)
    assert not problems
    return [f"{name} {port.cluster_ip}:{port.port}/{port.protocol}" for name, port in ports.items()]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(service("a", "172.30.0.1"), ["ns/a:p80 172.30.0.1:80/tcp"], id="one port"),
        pytest.param(
            service("a", "172.30.0.1", ports=[{"port": 80}]), ["ns/a 172.30.0.1:80/tcp"], id="port without a name"
        ),
        pytest.param(
            service("a", "172.30.0.1", ports=[{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]),
            ["ns/a:t 172.30.0.1:53/tcp", "ns/a:u 172.30.0.1:53/udp"],
            id="two protocols",
        ),
        pytest.param(service("a", "None"), [], id="headless"),
        pytest.param(service("a", ""), [], id="no address yet"),
        pytest.param(
            service("a", "172.30.0.1", type="ExternalName"), [], id="ExternalName, although it has an address"
        ),
        pytest.param(service("a", "fd00::1"), [], id="another family"),
        pytest.param(service("a", "172.30.0.1", ipFamilies=["IPv6"], clusterIPs=["fd00::1"]), [], id="by ipFamilies"),
        pytest.param(
            service("a", "fd00::1", ipFamilies=["IPv6", "IPv4"], clusterIPs=["fd00::1", "172.30.0.9"]),
            ["ns/a:p80 172.30.0.9:80/tcp"],
            id="second family of a dual-stack Service",
        ),
        pytest.param(service("a", "172.30.0.010"), ["ns/a:p80 172.30.0.10:80/tcp"], id="leading zero"),
    ],
)
def test_ports(obj: Json, expected: list[str]) -> None:
    assert ports_of(obj) == expected


def test_ipv6() -> None:
    assert ports_of(service("a", "fd00:0::1"), V6) == ["ns/a:p80 fd00::1:80/tcp"]


def test_addresses_of_the_other_family_are_left_out() -> None:
    obj = service(
        "a",
        "172.30.0.1",
        type="LoadBalancer",
        externalIPs=["192.168.99.1", "fd00::5", ""],
        loadBalancerSourceRanges=[" 203.0.113.0/25", "fd00::/8"],
        lb=["1.2.3.4", "fd00::6", {"ip": "1.2.3.5", "ipMode": "Proxy"}, {"hostname": "lb.example"}],
    )
    ports, problems = parse_service(obj, V4)
    (port,) = ports.values()
    assert problems == []
    assert (port.external_ips, port.load_balancer_ips, port.source_ranges) == (
        ("192.168.99.1",),
        ("1.2.3.4",),
        ("203.0.113.0/25",),
    )


def test_a_range_of_everybody_is_no_restriction() -> None:
    obj = service("a", "172.30.0.1", type="LoadBalancer", loadBalancerSourceRanges=["203.0.113.0/25", "0.0.0.0/0"])
    (port,) = parse_service(obj, V4)[0].values()
    assert port.source_ranges == ()


@pytest.mark.parametrize(
    ("spec", "external", "health"),
    [
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}, True, 31000),
        ({"type": "NodePort", "externalTrafficPolicy": "Local"}, True, 0),
        ({"externalIPs": ["192.168.99.1"], "externalTrafficPolicy": "Local"}, True, 0),
        ({"externalTrafficPolicy": "Local"}, False, 0),
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "healthCheckNodePort": 31000}, False, 0),
    ],
)
def test_external_policy_and_health_check(spec: Json, external: bool, health: int) -> None:
    (port,) = parse_service(service("a", "172.30.0.1", **spec), V4)[0].values()
    assert (port.external_local, port.health_check_node_port) == (external, health)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 0),
        ({"sessionAffinity": "None"}, 0),
        ({"sessionAffinity": "ClientIP"}, 10800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}, 60),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": None}}, 10800),
    ],
)
def test_affinity(spec: Json, seconds: int) -> None:
    (port,) = parse_service(service("a", "172.30.0.1", **spec), V4)[0].values()
    assert port.affinity_seconds == seconds


@pytest.mark.parametrize(
    ("obj", "kept", "said"),
    [
        pytest.param(service("a", "not-an-ip"), 0, "clusterIP", id="address"),
        pytest.param(service("a b", "172.30.0.1"), 0, "name", id="name with a space"),
        pytest.param(service('a"\n-A X', "172.30.0.1"), 0, "name", id="name that would be a rule"),
        pytest.param(
            service("a", "172.30.0.1", ports=[{"port": 0}, {"name": "x", "port": 1}]), 1, "out of range", id="port 0"
        ),
        pytest.param(service("a", "172.30.0.1", ports=[{"port": "80"}]), 0, "out of range", id="port as text"),
        pytest.param(service("a", "172.30.0.1", ports=[{"port": 1, "protocol": "ICMP"}]), 0, "protocol", id="protocol"),
        pytest.param(service("a", "172.30.0.1", ports=[{"name": "x\n", "port": 1}]), 0, "port name", id="port name"),
        pytest.param(service("a", "172.30.0.1", externalIPs=["1.2.3"]), 1, "externalIPs", id="external IP"),
        pytest.param(service("a", "172.30.0.1", loadBalancerSourceRanges=["1.2.3.4"]), 1, "Ranges", id="source range"),
    ],
)
def test_malformed_parts_are_left_out_and_reported(obj: Json, kept: int, said: str) -> None:
    ports, problems = parse_service(obj, V4)
    assert len(ports) == kept
    assert any(said in problem.message for problem in problems)
    assert all(problem.obj.startswith("Service ") for problem in problems)


def test_addresses() -> None:
    assert [parse_ip(text) for text in ("10.0.0.1", "010.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "x", None)] == [
        "10.0.0.1",
        "10.0.0.1",
        "10.0.0.1",
        None,
        None,
        None,
    ]
    assert [
        str(parse_cidr(text)) for text in ("10.1.2.3/8", "fd00::1/64", "10.0.0.1", "10.0.0.0/33", "10.0.0.0/ 8")
    ] == [
        "10.0.0.0/8",
        "fd00::/64",
        "None",
        "None",
        "None",
    ]
