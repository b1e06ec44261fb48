"""VXLAN: who is reached through it, which entries that takes, and how large a packet may be."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from cni.model import Forward, LinkFacts, Neighbour, NodeFacts, RouteFacts, Tunnel
from cni.plan import overlay, routes
from cni.plan.overlay import Peer


def node(name: str, ips: str, *cidrs: str) -> NodeFacts:
    return NodeFacts(name, tuple(map(ip_address, ips.split())), tuple(map(ip_network, cidrs)))


ME = node("me", "10.89.0.11", "10.244.0.0/24")
NEAR = node("near", "10.89.0.12", "10.244.1.0/24")
FAR = node("far", "198.51.100.1", "10.244.7.0/24")
LINK = [ip_interface("10.89.0.11/24")]
ALONE = [ip_interface("10.89.0.11/32")]


@pytest.mark.parametrize(
    ("mode", "connected", "expected", "peers"),
    [
        pytest.param("auto", LINK, {"10.244.1.0/24": "10.89.0.12", "10.244.7.0/24": "10.244.7.1 nwvx0"}, 1, id="auto"),
        pytest.param(
            "auto", ALONE, {"10.244.1.0/24": "10.244.1.1 nwvx0", "10.244.7.0/24": "10.244.7.1 nwvx0"}, 2, id="no link"
        ),
        pytest.param(
            "vxlan", LINK, {"10.244.1.0/24": "10.244.1.1 nwvx0", "10.244.7.0/24": "10.244.7.1 nwvx0"}, 2, id="always"
        ),
        pytest.param("routes", LINK, {"10.244.1.0/24": "10.89.0.12"}, 0, id="never"),
    ],
)
def test_who_is_reached_how(mode: str, connected: list[object], expected: dict[str, str], peers: int) -> None:
    plan = routes.plan(ME, [ME, NEAR, FAR], connected, [], ME.pod_cidrs, mode=mode)  # type: ignore[arg-type]
    assert {str(item.destination): f"{item.gateway} {item.link}".strip() for item in plan.add} == expected
    assert len(plan.peers) == peers
    assert bool(plan.skipped) is (mode == "routes")


@pytest.mark.parametrize(
    ("present", "kept"),
    [
        pytest.param(RouteFacts(FAR.pod_cidrs[0], ip_address("10.244.7.1"), 5, routes.PROTOCOL), True, id="right"),
        pytest.param(RouteFacts(FAR.pod_cidrs[0], ip_address("10.244.7.1"), 4, routes.PROTOCOL), False, id="old link"),
        pytest.param(RouteFacts(FAR.pod_cidrs[0], ip_address("10.89.0.1"), 2, routes.PROTOCOL), False, id="was near"),
    ],
)
def test_a_route_into_the_overlay_is_replaced_only_when_it_differs(present: RouteFacts, kept: bool) -> None:
    plan = routes.plan(ME, [ME, FAR], LINK, [present], ME.pod_cidrs, overlay_index=5)
    assert (plan.add == ()) is kept
    assert plan.remove == ()


def test_both_families_of_a_node_are_one_peer() -> None:
    me = node("me", "10.89.0.11 fd89::11", "10.244.0.0/24", "fd44::/64")
    far = node("far", "fd77::1 198.51.100.1", "10.244.7.0/24", "fd44:0:0:7::/64")
    plan = routes.plan(me, [me, far], LINK, [], me.pod_cidrs)
    assert plan.peers == (
        Peer("far", ip_address("198.51.100.1"), (ip_address("10.244.7.1"), ip_address("fd44:0:0:7::1"))),
    )


@pytest.mark.parametrize(
    ("me", "far", "reason"),
    [
        pytest.param(node("me", "", "10.244.0.0/24"), FAR, "own InternalIP is not known", id="own address unknown"),
        pytest.param(ME, node("far", "fd00::1", "10.244.7.0/24"), "no IPv4 InternalIP", id="no common family"),
        pytest.param(ME, node("far", "10.89.0.11", "10.244.7.0/24"), "this node's address", id="our address"),
    ],
)
def test_why_a_node_is_not_reached(me: NodeFacts, far: NodeFacts, reason: str) -> None:
    plan = routes.plan(me, [me, far], LINK, [], me.pod_cidrs)
    assert (plan.add, plan.peers) == ((), ())
    assert reason in plan.skipped[0]


PEER = Peer("far", ip_address("198.51.100.1"), (ip_address("10.244.7.1"),))
FORWARD = Forward("0a:58:c6:33:64:01", ip_address("198.51.100.1"))
NEIGHBOUR = Neighbour(ip_address("10.244.7.1"), "0a:58:c6:33:64:01")


@pytest.mark.parametrize(
    ("peers", "forward", "neighbours", "expected"),
    [
        pytest.param([PEER], [], [], overlay.EntryChanges((FORWARD,), (NEIGHBOUR,)), id="new"),
        pytest.param([PEER], [FORWARD], [NEIGHBOUR], overlay.EntryChanges(), id="right"),
        pytest.param(
            [], [FORWARD], [NEIGHBOUR], overlay.EntryChanges((), (), (FORWARD,), (NEIGHBOUR,)), id="node is gone"
        ),
        pytest.param(
            [PEER],
            [Forward("0a:58:01:02:03:04", ip_address("1.2.3.4"))],
            [replace(NEIGHBOUR, mac="0a:58:01:02:03:04")],
            overlay.EntryChanges((FORWARD,), (NEIGHBOUR,), (Forward("0a:58:01:02:03:04", ip_address("1.2.3.4")),)),
            id="node has moved: its neighbour entry is replaced",
        ),
    ],
)
def test_entries(
    peers: list[Peer], forward: list[Forward], neighbours: list[Neighbour], expected: overlay.EntryChanges
) -> None:
    assert overlay.entries(peers, forward, neighbours) == expected


@pytest.mark.parametrize(
    ("uplink", "ips", "path", "expected"),
    [
        pytest.param(1500, "10.89.0.11", {}, 1450, id="IPv4"),
        pytest.param(1500, "fd89::11", {}, 1430, id="IPv6"),
        pytest.param(9000, "10.89.0.11", {}, 8950, id="jumbo"),
        pytest.param(1500, "10.89.0.11", {ip_address("198.51.100.1"): 1400}, 1350, id="a narrow path"),
    ],
)
def test_what_fits_through(uplink: int, ips: str, path: dict[object, int], expected: int) -> None:
    assert overlay.link_mtu(uplink, node("me", ips), [PEER], path) == expected  # type: ignore[arg-type]


def test_pods_get_the_smallest_mtu_and_ipv6_its_least() -> None:
    both = [ip_network("10.244.0.0/24"), ip_network("fd44::/64")]
    assert overlay.pod_mtu(1500, 0, both) == (1500, "")
    assert overlay.pod_mtu(1500, 1450, both) == (1450, "")
    mtu, problem = overlay.pod_mtu(1300, 1250, both)
    assert (mtu, "needs 1280" in problem) == (1250, True)


def test_a_tunnel_is_remade_when_its_node_address_changed() -> None:
    plan = overlay.plan(ME, ME.pod_cidrs, 4789, 1450)
    assert plan is not None
    link = LinkFacts(5, "nwvx0", "vxlan", plan.mac, 1450, up=True, tunnel=plan.tunnel)
    assert not overlay.must_be_remade(plan, link)
    assert overlay.must_be_remade(plan, replace(link, tunnel=Tunnel(1, 4789, ip_address("10.89.0.99"))))
    assert not overlay.must_be_remade(plan, None)
    assert overlay.addresses_to_change(plan, [ip_interface("10.244.9.1/32"), ip_interface("fe80::1/64")]) == (
        (ip_interface("10.244.0.1/32"),),
        (ip_interface("10.244.9.1/32"),),
    )
