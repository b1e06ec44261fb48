"""What `doctor` says of a node's pod network: each fault by its own check, and nothing of a healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.doctor.plan.netcheck import Link, Place, check, place

LINKS = {
    "eth0": Link("eth0", mtu=1500, rp_filter="0"),
    "nw0": Link("nw0", "bridge", 1500, rp_filter="0"),
    "veth1": Link("veth1", "veth", 1500, "nw0"),
}
SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.netfilter.nf_conntrack_count": "100",
    "net.netfilter.nf_conntrack_max": "65536",
}
WELL = Place("lab/node1", LINKS, "eth0", SYSCTLS)
OVERLAY = Link("nwvx0", "vxlan", 1450)


def with_link(*links: Link) -> Place:
    return replace(WELL, links=LINKS | {link.name: link for link in links})


@pytest.mark.parametrize(
    ("here", "name", "found"),
    [
        pytest.param(replace(WELL, sysctls=SYSCTLS | {"net.ipv4.ip_forward": "0"}), "forwarding", "is 0", id="forward"),
        pytest.param(
            replace(WELL, sysctls=SYSCTLS | {"net.bridge.bridge-nf-call-iptables": "0"}),
            "bridge netfilter",
            "does not answer",
            id="bridge",
        ),
        pytest.param(with_link(OVERLAY), "MTU", "pods have MTU 1500, 1450 fit", id="MTU without room for VXLAN"),
        pytest.param(with_link(Link("eth0", mtu=1400)), "MTU", "1400 fit", id="narrow uplink"),
        pytest.param(with_link(Link("veth2", "veth", 9000, "nw0")), "MTU", "veth2 differ", id="one pod differs"),
        pytest.param(with_link(Link("eth0", mtu=1500, rp_filter="1")), "reverse path filter", "eth0", id="strict"),
        pytest.param(replace(WELL, forward="-P FORWARD DROP\n"), "FORWARD policy", "cannot override", id="policy"),
        pytest.param(replace(WELL, foreign=7), "other iptables backend", "7 rules", id="other backend"),
        pytest.param(
            replace(WELL, sysctls=SYSCTLS | {"net.netfilter.nf_conntrack_count": "65000"}),
            "conntrack table",
            "65000 of 65536",
            id="nearly full",
        ),
        pytest.param(replace(WELL, conntrack={"drop": 3}), "conntrack table", "3 packets dropped", id="was full"),
        pytest.param(replace(WELL, conntrack={"insert_failed": 40}), "conntrack races", "5 s", id="DNS race"),
        pytest.param(replace(WELL, dns={"NXDOMAIN": 4000, "NOERROR": 1000}), "DNS", "5.0 DNS questions", id="ndots"),
        pytest.param(replace(WELL, dns={"SERVFAIL": 400, "NOERROR": 1000}), "DNS", "SERVFAIL to 400", id="no upstream"),
    ],
)
def test_each_fault_is_named_with_its_fix(here: Place, name: str, found: str) -> None:
    (finding,) = check(here)
    assert (finding.check, finding.level) == (f"lab/node1: {name}", "warning")
    assert found in finding.found
    assert finding.fix


@pytest.mark.parametrize(
    "here",
    [
        pytest.param(WELL, id="routes"),
        pytest.param(with_link(OVERLAY, Link("nw0", "bridge", 1450), Link("veth1", "veth", 1450, "nw0")), id="VXLAN"),
        pytest.param(
            replace(WELL, forward="-P FORWARD DROP\n-A FORWARD -j NODEWRIGHT-FORWARD\n"), id="policy is overridden"
        ),
        pytest.param(replace(WELL, dns={"NXDOMAIN": 40, "NOERROR": 1}), id="too few questions to judge"),
        pytest.param(Place("lab/node1"), id="no pod network yet"),
    ],
)
def test_what_is_well_is_one_line(here: Place) -> None:
    assert [finding.level for finding in check(here)] == ["ok"]


@pytest.mark.parametrize(
    ("nft", "legacy", "foreign"),
    [
        pytest.param((50, 40), (0, 0), 0, id="ours in nft"),
        pytest.param((50, 40), (3, 0), 3, id="somebody in legacy"),
        pytest.param((2, 0), (50, 40), 2, id="ours in legacy"),
        pytest.param((5, 0), (3, 0), 3, id="neither is ours: the smaller one is the stranger"),
    ],
)
def test_which_rules_are_foreign(nft: tuple[int, int], legacy: tuple[int, int], foreign: int) -> None:
    seen: dict[str, Any] = {
        "links": [{"name": "nw0", "kind": "bridge", "mtu": 1500, "master": "", "rp_filter": "0"}],
        "default_link": "default via 192.0.2.1 dev ens3 proto dhcp",
        "sysctls": {},
        "conntrack": {},
        "rules": {
            "nft": dict(zip(("all", "own"), nft, strict=True)),
            "legacy": dict(zip(("all", "own"), legacy, strict=True)),
        },
        "forward": "",
        "dns": {},
    }
    assert (place("x", seen).foreign, place("x", seen).uplink) == (foreign, "ens3")
