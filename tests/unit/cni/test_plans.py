"""Tables for the pure decisions: addresses, bridge, routes, host ports, rules."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.model import (
    Address,
    Attachment,
    AttachmentKey,
    FirewallFacts,
    HostPort,
    LinkFacts,
    NodeFacts,
    NodeRoute,
    PortMapping,
    RouteFacts,
    Tunnel,
)
from cni.plan import hostports, ipam, iptables, links, names, nftables, node, orphans, overlay, routes
from cni.spec.configuration import NetConf, address_range
from nodelib.netlink.flows import UdpFlow

SMALL = (address_range({"subnet": "10.1.0.0/29"}),)


def ips(*texts: str) -> list[Address]:
    return [ip_address(text) for text in texts]


@pytest.mark.parametrize(
    ("taken", "last", "wanted", "picked"),
    [
        pytest.param([], None, None, "10.1.0.2", id="first, never the gateway"),
        pytest.param([], "10.1.0.3", None, "10.1.0.4", id="after the last one"),
        pytest.param([], "10.1.0.6", None, "10.1.0.2", id="round the end"),
        pytest.param(["10.1.0.4"], "10.1.0.3", None, "10.1.0.5", id="over a taken one"),
        pytest.param([f"10.1.0.{n}" for n in range(2, 7)], "10.1.0.3", None, None, id="full"),
        pytest.param([f"10.1.0.{n}" for n in (2, 4, 5, 6)], "10.1.0.3", None, "10.1.0.3", id="only the last one left"),
        pytest.param([], "192.0.2.1", None, "10.1.0.2", id="last of another range"),
        pytest.param([], None, "10.1.0.5", "10.1.0.5", id="asked for"),
        pytest.param(["10.1.0.5"], None, "10.1.0.5", None, id="asked for and taken"),
        pytest.param([], None, "10.1.0.1", None, id="asked for the gateway"),
        pytest.param([], None, "10.9.0.5", None, id="asked for outside"),
    ],
)
def test_pick(taken: list[str], last: str | None, wanted: str | None, picked: str | None) -> None:
    found = ipam.pick(
        SMALL,
        set(ips(*taken)),
        ip_address(last) if last else None,
        ip_address(wanted) if wanted else None,
    )
    assert found == (ip_address(picked) if picked else None)


@given(st.lists(st.integers(0, 20), max_size=80))
def test_pick_never_doubles_never_leaks(order: list[int]) -> None:
    """Any order of taking (0 to 9) and giving back (10 to 20): all addresses distinct, none lost."""
    ranges = (address_range({"subnet": "10.1.0.0/29"}), address_range({"subnet": "10.2.0.0/30"}))
    taken: list[Address] = []
    last: Address | None = None
    for move in order:
        if move < 10:
            address = ipam.pick(ranges, taken, last)
            assert (address is None) == (len(taken) == 5 + 1)  # of each range all but the gateway
            if address is not None:
                assert address not in taken
                taken.append(address)
                last = address
        elif taken:
            taken.pop(move % len(taken))


@given(st.integers(0, 2**63), st.integers(0, 40))
def test_pick_in_a_range_without_end(start: int, count: int) -> None:
    large = (address_range({"subnet": "fd00::/64"}),)
    taken: list[Address] = []
    last: Address = ip_network("fd00::/64").network_address + start
    for _ in range(count):
        found = ipam.pick(large, taken, last)
        assert found is not None
        taken.append(found)
        last = found
    assert len(set(taken)) == count


def test_host_names_are_short_and_apart() -> None:
    made = {names.host_ifname("net", AttachmentKey(f"c{n}", "eth0")) for n in range(1000)}
    assert len(made) == 1000
    assert max(map(len, made)) == 15


@pytest.mark.parametrize(
    ("configured", "bridge", "expected"),
    [(1400, 9000, 1400), (0, 9000, 9000), (0, 0, 1500)],
    ids=["as configured", "as the bridge", "as Ethernet"],
)
def test_the_mtu_of_a_pods_link(configured: int, bridge: int, expected: int) -> None:
    conf = NetConf("1.1.0", "nodewright", mtu=configured, ranges=(SMALL,))
    plan = links.plan(conf, AttachmentKey("c", "eth0"), ips("10.1.0.2"), replace(THERE, mtu=bridge))
    assert plan.mtu == expected


BRIDGE = node.bridge("nw0", [address_range({"subnet": "10.1.0.0/24"})], 1500)
THERE = LinkFacts(3, "nw0", "bridge", BRIDGE.mac, 1500, up=True)
GATEWAY = ip_interface("10.1.0.1/24")
OLD = ip_interface("10.9.0.1/24")


@pytest.mark.parametrize(
    ("link", "present", "in_use", "wanted"),
    [
        pytest.param(None, [], [], node.BridgeChanges(create=True, add=(GATEWAY,)), id="nothing there"),
        pytest.param(THERE, [GATEWAY], [], node.BridgeChanges(), id="all right"),
        pytest.param(THERE, [], [], node.BridgeChanges(add=(GATEWAY,)), id="address lost"),
        pytest.param(
            LinkFacts(3, "nw0", "bridge", "aa:aa:aa:aa:aa:aa", 1400, up=False),
            [GATEWAY],
            [],
            node.BridgeChanges(bring_up=True, set_mtu=1500, set_mac=BRIDGE.mac),
            id="changed by hand",
        ),
        pytest.param(THERE, [GATEWAY, OLD], [], node.BridgeChanges(remove=(OLD,)), id="old podCIDR, no pods"),
        pytest.param(THERE, [GATEWAY, OLD], ips("10.9.0.7"), node.BridgeChanges(), id="old podCIDR, a pod left"),
        pytest.param(
            THERE, [GATEWAY, ip_interface("fe80::1/64")], [], node.BridgeChanges(), id="link-local is the kernel's"
        ),
    ],
)
def test_bridge_changes(link: LinkFacts | None, present: list[Any], in_use: list[Any], wanted: Any) -> None:
    routes = [RouteFacts(GATEWAY.network, None, THERE.index, 2)]
    assert node.changes(BRIDGE, link, present, in_use, routes) == wanted


@pytest.mark.parametrize(
    "routes",
    [
        pytest.param([], id="no route"),
        pytest.param([RouteFacts(GATEWAY.network, None, THERE.index + 1, 2)], id="a route over another link"),
    ],
)
def test_the_route_to_the_nodes_own_pods_is_restored(routes: list[RouteFacts]) -> None:
    assert node.changes(BRIDGE, THERE, [GATEWAY], [], routes) == node.BridgeChanges(route=(GATEWAY,))


def test_uplink_mtu() -> None:
    links = [LinkFacts(1, "a", "", "", 9000, up=True), LinkFacts(2, "b", "", "", 1450, up=True)]
    addresses = [(1, ip_interface("192.0.2.1/24")), (2, ip_interface("10.89.0.11/24"))]
    default = [RouteFacts(ip_network("0.0.0.0/0"), ip_address("192.0.2.254"), 1, 3)]
    assert node.uplink_mtu(links, addresses, default, ips("10.89.0.11")) == 1450
    assert node.uplink_mtu(links, addresses, default, ()) == 9000
    assert node.uplink_mtu(links, addresses, [], ()) == 1500


def peer(name: str, ip: str, *cidrs: str) -> NodeFacts:
    return NodeFacts(name, tuple(ips(*ip.split())), tuple(ip_network(item) for item in cidrs))


def ours(destination: str, gateway: str, protocol: int = routes.PROTOCOL) -> RouteFacts:
    return RouteFacts(ip_network(destination), ip_address(gateway), 2, protocol)


CONNECTED = [ip_interface("10.89.0.11/24")]
ME = peer("me", "10.89.0.11", "10.244.0.0/24")


@pytest.mark.parametrize(
    ("nodes", "present", "add", "remove", "skipped"),
    [
        pytest.param([ME], [], [], [], [], id="alone"),
        pytest.param([ME, peer("b", "10.89.0.12", "10.244.1.0/24")], [], ["10.244.1.0/24"], [], [], id="one other"),
        pytest.param(
            [ME, peer("b", "10.89.0.12", "10.244.1.0/24")],
            [ours("10.244.1.0/24", "10.89.0.12")],
            [],
            [],
            [],
            id="there already",
        ),
        pytest.param(
            [ME, peer("b", "10.89.0.12", "10.244.1.0/24")],
            [ours("10.244.1.0/24", "10.89.0.99")],
            ["10.244.1.0/24"],
            [],
            [],
            id="node has moved",
        ),
        pytest.param([ME], [ours("10.244.1.0/24", "10.89.0.12")], [], ["10.244.1.0/24"], [], id="node is gone"),
        pytest.param([ME], [ours("10.244.1.0/24", "10.89.0.12", protocol=4)], [], [], [], id="somebody else's"),
        pytest.param([ME, peer("b", "10.89.0.12")], [], [], [], [], id="no podCIDR yet"),
        pytest.param([ME, peer("b", "", "10.244.1.0/24")], [], [], [], ["no IPv4 InternalIP"], id="no address"),
        pytest.param(
            [ME, peer("b", "192.0.2.1", "10.244.1.0/24")], [], [], [], ["on no link"], id="next hop off the links"
        ),
        pytest.param(
            [ME, peer("b", "10.89.0.11", "10.244.1.0/24")], [], [], [], ["this node's address"], id="our own address"
        ),
        pytest.param(
            [ME, peer("b", "10.89.0.12", "10.244.1.0/24"), peer("c", "10.89.0.13", "10.244.1.0/24")],
            [],
            ["10.244.1.0/24"],
            [],
            ["node b's too"],
            id="two with one podCIDR",
        ),
        pytest.param(
            [ME, peer("b", "10.89.0.12", "10.244.0.0/16")], [], [], [], ["overlaps this node's own"], id="overlap"
        ),
        pytest.param(
            [ME, peer("b", "fd00::2 10.89.0.12", "10.244.1.0/24", "fd01::/64")],
            [],
            ["10.244.1.0/24"],
            [],
            ["on no link"],
            id="dual stack, IPv6 not on a link",
        ),
    ],
)
def test_routes(
    nodes: list[NodeFacts], present: list[RouteFacts], add: list[str], remove: list[str], skipped: list[str]
) -> None:
    plan = routes.plan(ME, nodes, CONNECTED, present, ME.pod_cidrs, mode="routes")
    assert [str(item.destination) for item in plan.add] == add
    assert all(isinstance(item, NodeRoute) and str(item.gateway) == "10.89.0.12" for item in plan.add)
    assert [str(item.destination) for item in plan.remove] == remove
    assert len(plan.skipped) == len(skipped)
    assert all(part in text for part, text in zip(skipped, plan.skipped, strict=True))


HELD = Attachment(AttachmentKey("c1", "eth0"), (), (PortMapping(80, 8080, "tcp", "10.0.0.1"),), "ns/a")


@pytest.mark.parametrize(
    ("mapping", "meets"),
    [
        pytest.param(PortMapping(80, 1, "tcp", "10.0.0.1"), True, id="the same"),
        pytest.param(PortMapping(80, 1, "tcp"), True, id="every address"),
        pytest.param(PortMapping(80, 1, "tcp", "10.0.0.2"), False, id="another address"),
        pytest.param(PortMapping(80, 1, "udp", "10.0.0.1"), False, id="another protocol"),
        pytest.param(PortMapping(81, 1, "tcp", "10.0.0.1"), False, id="another port"),
    ],
)
def test_host_port_conflicts(mapping: PortMapping, meets: bool) -> None:
    assert bool(hostports.conflicts(AttachmentKey("c2", "eth0"), [mapping], [HELD])) is meets
    assert hostports.conflicts(HELD.key, [mapping], [HELD]) == []


POD, NODE_IP, CLIENT = ips("10.244.0.5", "10.89.0.11", "10.89.0.12")
DNS = HostPort(PortMapping(5353, 53, "udp"), POD)


def flow(destination: Any, port: int, answered: Any, answered_port: int) -> UdpFlow:
    return UdpFlow(str(CLIENT), 40000, str(destination), port, str(answered), answered_port)


@pytest.mark.parametrize(
    ("entry", "added", "removed", "stale"),
    [
        pytest.param(flow(NODE_IP, 5353, NODE_IP, 5353), [DNS], [], True, id="client was there before the pod"),
        pytest.param(flow(NODE_IP, 5353, POD, 53), [DNS], [], False, id="goes to the pod already"),
        pytest.param(flow(NODE_IP, 5353, POD, 53), [], [DNS], True, id="pod is gone"),
        pytest.param(flow(CLIENT, 5353, CLIENT, 5353), [DNS], [], False, id="passes through to elsewhere"),
        pytest.param(flow(NODE_IP, 9, NODE_IP, 9), [DNS], [], False, id="another port"),
        pytest.param(flow(POD, 53, POD, 53), [], [DNS], False, id="to the pod itself"),
    ],
)
def test_stale_flows(entry: UdpFlow, added: list[HostPort], removed: list[HostPort], stale: bool) -> None:
    assert bool(hostports.stale_flows([entry], {NODE_IP}, added, removed)) is stale


def test_dead_sandboxes() -> None:
    def made(name: str, created: float) -> Attachment:
        return Attachment(AttachmentKey(name, "eth0"), (), created=created)

    found = orphans.orphaned([made("alive", 0), made("dead", 0), made("young", 950)], {"alive"}, 1000)
    assert [item.key.container_id for item in found] == ["dead"]


@pytest.mark.parametrize("step", [0, 3600, -3600, 2 * 86400, -2 * 86400])
def test_a_step_of_the_wall_clock_releases_no_address_and_keeps_none(step: float) -> None:
    """Names say what happens to the sandbox: `found` and `left` are from before this process, the others made by it."""
    wall = 10_000.0
    known: dict[AttachmentKey, float] | None = None

    def made(*names: str, created: float) -> list[Attachment]:
        return [Attachment(AttachmentKey(name, "eth0"), (), created=created) for name in names]

    def released(present: list[Attachment], live: set[str], monotonic: float) -> list[str]:
        nonlocal known
        known = orphans.unlisted_since(known, present, live, wall + step + monotonic, monotonic)
        return [item.key.container_id for item in orphans.to_release(present, live, known, monotonic)]

    there = made("found", "left", created=wall - 500 + step)
    assert released(there, {"found"}, 0) == ["left"]
    there = [*made("found", created=wall - 500), *made("starting", "ends", "fails", created=wall + 290)]
    assert released(there, {"found", "ends"}, 300) == [], "an ADD of ten seconds ago is under way"
    assert released(there, {"starting"}, 310) == ["found", "ends"]
    assert released(there[1:], {"starting"}, 600) == ["ends", "fails"]


FACTS = FirewallFacts(
    network="nodewright",
    bridge="nw0",
    pod_cidrs=(ip_network("10.244.0.0/24"),),
    non_masquerade=(ip_network("10.244.0.0/16"), ip_network("10.89.0.12/32")),
    host_ports=(
        HostPort(PortMapping(80, 8080, "tcp", "10.89.0.11"), POD, "ns/web"),
        HostPort(PortMapping(53, 53, "udp"), POD, "ns/web"),
    ),
)


def test_iptables_rules() -> None:
    chains = {
        chain.name: [" ".join(rule.words) for rule in chain.rules]
        for item in iptables.chains(FACTS).values()
        for chain in item
    }
    assert chains == {
        "NODEWRIGHT-LOCALNET": ["-m comment --comment pods have no business with the node's loopback -j DROP"],
        "NODEWRIGHT-HOSTPORTS": [
            "-d 10.89.0.11/32 -p tcp -m tcp --dport 80 -m comment --comment hostPort of ns/web"
            " -j DNAT --to-destination 10.244.0.5:8080",
            "-p udp -m udp --dport 53 -m comment --comment hostPort of ns/web -j DNAT --to-destination 10.244.0.5:53",
        ],
        "NODEWRIGHT-POSTROUTING": [
            "-s 10.244.0.5/32 -d 10.244.0.5/32 -p tcp -m tcp --dport 8080 -m conntrack --ctstate DNAT -j MASQUERADE",
            "-s 127.0.0.0/8 -d 10.244.0.5/32 -p tcp -m tcp --dport 8080 -m conntrack --ctstate DNAT -j MASQUERADE",
            "-s 10.244.0.5/32 -d 10.244.0.5/32 -p udp -m udp --dport 53 -m conntrack --ctstate DNAT -j MASQUERADE",
            "-s 127.0.0.0/8 -d 10.244.0.5/32 -p udp -m udp --dport 53 -m conntrack --ctstate DNAT -j MASQUERADE",
            "-s 10.244.0.0/24 -d 10.89.0.12/32 -j RETURN",
            "-s 10.244.0.0/24 -d 10.244.0.0/16 -j RETURN",
            "-s 10.244.0.0/24 -d 224.0.0.0/4 -j RETURN",
            "-s 10.244.0.0/24 -m comment --comment outside the cluster -j MASQUERADE --random-fully",
        ],
        "NODEWRIGHT-FORWARD": ["-s 10.244.0.0/24 -j ACCEPT", "-d 10.244.0.0/24 -j ACCEPT"],
        "NODEWRIGHT-OVERLAY": [],
    }


def test_nft_rules() -> None:
    text = nftables.transaction(FACTS)
    assert text.startswith("add table ip nodewright\ndelete table ip nodewright\ntable ip nodewright {\n")
    for line in (
        "ip daddr 10.89.0.11 tcp dport 80 dnat to 10.244.0.5:8080",
        "udp dport 53 dnat to 10.244.0.5:53",
        'iifname "nw0" ip daddr 127.0.0.0/8 drop',
        "ip saddr 10.244.0.0/24 ip daddr { 10.89.0.12/32, 10.244.0.0/16, 224.0.0.0/4 } return",
        "ip saddr 10.244.0.0/24 masquerade fully-random",
        "ip saddr 10.244.0.5 ip daddr 10.244.0.5 tcp dport 8080 ct status dnat masquerade",
        "ip saddr 127.0.0.0/8 ip daddr 10.244.0.5 tcp dport 8080 ct status dnat masquerade",
        "ip saddr 10.244.0.5 ip daddr 10.244.0.5 udp dport 53 ct status dnat masquerade",
    ):
        assert f"    {line}\n" in text


GUARD = overlay.guard(Tunnel(1, 4789, ip_address("10.89.0.11")), 4, [ip_network("10.244.0.0/16"), FACTS.pod_cidrs[0]])


def test_pods_do_not_reach_the_end_of_the_overlay() -> None:
    facts = replace(FACTS, guard=GUARD)
    (chain,) = (one for one in iptables.chains(facts)["filter"] if one.name == "NODEWRIGHT-OVERLAY")
    port = "-p udp -m udp --dport 4789 -j DROP"
    assert [" ".join(one.words) for one in chain.rules] == [
        "-m addrtype ! --dst-type LOCAL -d 10.244.0.0/16 -j RETURN",
        f"-i nw0 {port}",
        f"-i nwvx0 {port}",
        f"-s 10.244.0.0/16 {port}",
        f"! -d 10.89.0.11/32 {port}",
    ]
    assert iptables.jumps(facts) == iptables.jumps(FACTS), "removed with or without an overlay"
    text = nftables.transaction(facts)
    for line in (
        'udp dport 4789 iifname { "nw0", "nwvx0" } drop',
        "udp dport 4789 ip daddr != 10.89.0.11 drop",
        "udp dport 4789 ip saddr { 10.244.0.0/16 } drop",
        'udp dport 4789 iifname "nw0" ip daddr != { 10.244.0.0/16 } drop',
    ):
        assert f"    {line}\n" in text
    assert "overlay" not in nftables.transaction(FACTS)


def test_an_overlay_of_the_other_family_needs_no_guard() -> None:
    assert overlay.guard(Tunnel(1, 4789, ip_address("fd89::11")), 4, FACTS.pod_cidrs) is None
    assert overlay.guard(None, 4, FACTS.pod_cidrs) is None


POD6 = ip_address("fd44::5")
FACTS6 = FirewallFacts(
    version=6,
    network="nodewright",
    bridge="nw0",
    pod_cidrs=(ip_network("fd44::/64"),),
    non_masquerade=(ip_network("fd44::/56"), ip_network("fd89::12/128")),
    host_ports=(HostPort(PortMapping(80, 8080, "tcp", "fd89::11"), POD6, "ns/web"),),
)


def test_ip6tables_rules() -> None:
    chains = {
        chain.name: [" ".join(rule.words) for rule in chain.rules]
        for item in iptables.chains(FACTS6).values()
        for chain in item
    }
    assert chains == {
        "NODEWRIGHT-HOSTPORTS": [
            "-d fd89::11/128 -p tcp -m tcp --dport 80 -m comment --comment hostPort of ns/web"
            " -j DNAT --to-destination [fd44::5]:8080",
        ],
        "NODEWRIGHT-POSTROUTING": [
            "-s fd44::5/128 -d fd44::5/128 -p tcp -m tcp --dport 8080 -m conntrack --ctstate DNAT -j MASQUERADE",
            "-s fd44::/64 -d fd44::/56 -j RETURN",
            "-s fd44::/64 -d fd89::12/128 -j RETURN",
            "-s fd44::/64 -d fe80::/10 -j RETURN",
            "-s fd44::/64 -d ff00::/8 -j RETURN",
            "-s fd44::/64 -m comment --comment outside the cluster -j MASQUERADE --random-fully",
        ],
        "NODEWRIGHT-FORWARD": ["-s fd44::/64 -j ACCEPT", "-d fd44::/64 -j ACCEPT"],
        "NODEWRIGHT-OVERLAY": [],
    }
    assert "raw" not in iptables.jumps(FACTS6)


def test_nft_rules_of_ipv6() -> None:
    text = nftables.transaction(FACTS6)
    assert text.startswith("add table ip6 nodewright\ndelete table ip6 nodewright\ntable ip6 nodewright {\n")
    for line in (
        "ip6 daddr fd89::11 tcp dport 80 dnat to [fd44::5]:8080",
        "ip6 saddr fd44::/64 ip6 daddr { fd44::/56, fd89::12/128, fe80::/10, ff00::/8 } return",
        "ip6 saddr fd44::/64 masquerade fully-random",
    ):
        assert f"    {line}\n" in text
    assert "127.0.0.0" not in text


def test_without_bridge_filtering_pods_of_the_node_are_masqueraded_to_host_ports() -> None:
    facts = replace(FACTS, bridge_filtered=False)
    rules = [" ".join(rule.words) for rule in iptables.chains(facts)["nat"][1].rules]
    assert any(rule.startswith("-s 10.244.0.0/24 -d 10.244.0.5/32 -p tcp") for rule in rules)
    assert (
        "ip saddr 10.244.0.0/24 ip daddr 10.244.0.5 tcp dport 8080 ct status dnat masquerade"
        in nftables.transaction(facts)
    )


def test_another_network_has_chains_of_its_own() -> None:
    own, other = iptables.chain_names("nodewright"), iptables.chain_names("podman")
    assert not set(vars_of(own)) & set(vars_of(other))
    assert all(len(name) <= 28 for name in vars_of(other))


def vars_of(value: iptables.Names) -> tuple[str, ...]:
    return value.postrouting, value.hostports, value.localnet, value.forward, value.overlay
