"""What one node says of itself, in its own Node object or on the way to it, costs no other node its network."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest

from agent.node.plan.status import node_place
from agent.node.work.node_places import NodePlaces
from cli.node_agent import Translated, translated
from cni.model import Attachment, AttachmentKey, Interface, LinkPlan, NodeFacts, NodeRoute, RouteFacts
from cni.plan import overlay, routes
from cni.plan.names import host_ifname
from nodelib.errors import Permanent, Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.fakes.fake_netlink import NODE, FakeLinks
from tests.unit.cni.test_daemon import FAR, ME, PEER, Bench

LINK = [ip_interface("10.89.0.11/24"), ip_interface("fd89::11/64")]
PODS = (ip_network("10.244.0.0/16"),)


def evil(ips: str, *cidrs: str) -> NodeFacts:
    return NodeFacts("evil", tuple(map(ip_address, ips.split())), tuple(map(ip_network, cidrs)), "2026-11-30T15:00:00Z")


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "198.51.100.0/24", "10.244.7.0/25"], ids=["all", "nodes", "pods"])
async def test_a_range_that_is_not_believed_closes_nobody_elses_tunnel(cidr: str) -> None:
    """What the guard of the overlay calls pods may send nothing to the overlay's port: not the other nodes, too. And
    pods send to that port of pods only: not of the other nodes, too.
    """
    bench = Bench()
    bench.network.set_nodes([ME, PEER, FAR, evil("10.89.0.66", cidr)])
    await bench.network.sync()
    guard = bench.rules[-1].guard
    assert guard is not None
    assert all(one.subnet_of(PODS[0]) for one in guard.pods)  # type: ignore[arg-type]


async def test_pods_outside_of_the_known_ranges_are_pods_to_the_guard() -> None:
    bench = Bench()
    bench.network._settings = replace(bench.network._settings, cluster_cidrs=())
    object.__setattr__(bench.network._links, "settings", bench.network._settings)
    bench.network.set_nodes([ME, PEER, FAR, evil("10.89.0.66", "198.51.100.0/24")])
    await bench.network.sync()
    guard = bench.rules[-1].guard
    assert guard is not None
    assert sorted(map(str, guard.pods)) == ["10.244.0.0/24", "10.244.1.0/24", "10.244.7.0/24"]


@pytest.mark.parametrize("held", [True, False], ids=["served", "new"])
def test_an_address_among_the_pods_of_another_node_is_no_nodes_address(held: bool) -> None:
    """No podCIDR is believed that covers a node's address. Each node says itself which ones it has."""
    served = RouteFacts(PEER.pod_cidrs[0], PEER.internal_ips[0], 9, routes.PROTOCOL)
    nodes = [ME, PEER, evil("10.89.0.66 10.244.1.7", "10.244.2.0/24")]
    plan = routes.plan(ME, nodes, LINK, [served] if held else [], ME.pod_cidrs, cluster_cidrs=PODS)
    assert [text.partition(", which is ")[0] for text in plan.skipped] == [
        "node evil names 10.244.1.7 among its addresses"
    ]
    assert plan.remove == () and len(plan.add) == (1 if held else 2)


@pytest.mark.parametrize("cidr", ["10.244.1.0/25", "10.244.1.0/24"], ids=["a part of it", "the same"])
def test_of_two_new_claims_that_of_the_older_node_is_believed(cidr: str) -> None:
    """A node that has just begun knows no routes yet. No Node changes the podCIDR that it has."""
    older = replace(PEER, created="2026-11-01T00:00:00Z")
    plan = routes.plan(ME, [evil("10.89.0.66", cidr), ME, older], LINK, [], ME.pod_cidrs, cluster_cidrs=PODS)
    assert [str(one.gateway) for one in plan.add] == ["10.89.0.12"]


def test_where_nodes_have_addresses_of_the_pods_range_no_podcidr_covers_one() -> None:
    """--pod-network-cidr 10.0.0.0/8, and nodes in it."""
    nodes = [ME, PEER, evil("10.89.0.66", "10.89.0.12/32")]
    plan = routes.plan(ME, nodes, LINK, [], ME.pod_cidrs, cluster_cidrs=[ip_network("10.0.0.0/8")])
    assert "covers the address 10.89.0.12 of node peer" in plan.skipped[0]


@pytest.mark.parametrize(
    ("path", "mtu"),
    [pytest.param(552, 1024, id="as little as Linux believes"), pytest.param(1300, 1250, id="a tunnel between nodes")],
)
async def test_one_path_takes_little_from_all_pods(path: int, mtu: int) -> None:
    """Whoever answers at a node's address, or on the way there, says how large a packet may be."""
    bench = Bench()
    bench.network.set_nodes([ME, FAR])
    bench.paths[FAR.internal_ips[0]] = path
    await bench.network.sync()
    links = bench.kernel.namespaces[NODE].links
    assert (links["nwvx0"].mtu, links["nw0"].mtu) == (mtu, mtu)
    said = [one for one in bench.network._reported if "come in fragments" in one]
    assert len(said) == (1 if path < mtu else 0)


def test_no_path_takes_ipv6_off_the_pods_links() -> None:
    """Below 1,280 bytes the kernel does that."""
    peers, paths = [overlay.Peer("far", FAR.internal_ips[0])], {FAR.internal_ips[0]: 552}
    both = (*ME.pod_cidrs, ip_network("fd44::/64"))
    mtu = overlay.link_mtu(1500, ME, peers, paths, both)
    assert overlay.pod_mtu(1500, mtu, both) == (1280, "")
    assert "552" in overlay.narrow_paths(mtu, ME, peers, paths)[0]


def test_an_uplink_that_is_narrow_itself_is_followed() -> None:
    peers = [overlay.Peer("far", FAR.internal_ips[0])]
    assert overlay.link_mtu(1000, ME, peers, {FAR.internal_ips[0]: 900}, ME.pod_cidrs) == 950


def test_a_node_with_very_many_addresses_holds_up_no_agent() -> None:
    """Each change of it was 0.32 s of the event loop of every agent, with as many as an API server stores."""
    known: list[NodeFacts] = []
    places = NodePlaces(lambda found: known.extend(map(translated, found)))
    listed = [{"type": "InternalIP", "address": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"} for n in range(1, 60_000)]
    node: Json = {"metadata": {"name": "evil"}, "status": {"addresses": listed}}
    began = time.process_time()
    places.on_node("ADDED", node)
    assert time.process_time() - began < 0.05
    assert 0 < len(known[0].internal_ips) <= 16


async def test_of_what_a_node_calls_its_addresses_little_is_left_out_of_masquerade() -> None:
    """What pods send to a node has their own addresses. With sixteen resolvers of the internet among its addresses a
    node took them from the pods of all nodes: nobody answers to a pod's address.
    """
    bench = Bench()
    bench.network.set_nodes([ME, evil("10.89.0.66 8.8.8.8 1.1.1.1 9.9.9.9 fd89::66 2001:db8::53")])
    await bench.network.sync()
    assert {str(one) for one in bench.network.non_masquerade if one.prefixlen == one.max_prefixlen} == {
        "10.89.0.11/32",
        "10.89.0.66/32",
        "fd89::66/128",
    }


def test_one_of_many_nodes_that_changes_is_the_only_one_that_is_read() -> None:
    """2,000 nodes took 0.07 s of the event loop of every agent, whenever one of them changed its address."""
    known, facts = Translated(), list[NodeFacts]()
    places = NodePlaces(lambda found: facts.__setitem__(slice(None), known.all(found)))
    for n in range(1, 2000):
        places._places[f"n{n}"] = node_place(node_object(f"n{n}", f"10.{n >> 8}.{n & 255}.1"))
    places.on_node("ADDED", node_object("evil", "10.200.0.1"))
    began = time.process_time()
    for n in range(10):
        places.on_node("MODIFIED", node_object("evil", f"10.200.0.{n + 2}"))
    assert time.process_time() - began < 0.2
    assert len(facts) == 2000 and facts[0].internal_ips == (ip_address("10.200.0.11"),)
    places.on_node("DELETED", node_object("evil", ""))
    assert len(facts) == 1999


def node_object(name: str, ip: str) -> Json:
    ranges = {"podCIDRs": ["10.244.1.0/24", "fd44:0:0:7::/64"]}
    return {
        "metadata": {"name": name},
        "spec": ranges,
        "status": {"addresses": [{"type": "InternalIP", "address": ip}]},
    }


def test_the_claims_of_many_nodes_are_compared_in_little_time() -> None:
    """Each podCIDR was compared with all others, and with each address: 2.6 s for 1,000 nodes of both families, four
    times as much for twice as many, and again whenever one of them changed.
    """
    nodes = [
        NodeFacts(
            f"n{n}", (ip_address(f"10.89.{n >> 8}.{n & 255}"),), (ip_network(f"10.{128 + (n >> 8)}.{n & 255}.0/24"),)
        )
        for n in range(1, 4000)
    ]
    link = [ip_interface("10.89.0.11/16")]
    began = time.process_time()
    plan = routes.plan(nodes[10], nodes, link, [], nodes[10].pod_cidrs)
    assert time.process_time() - began < 2
    assert (len(plan.add), plan.skipped) == (3998, ())


@pytest.mark.parametrize(
    "ip",
    [
        pytest.param("10.89.0.255", id="the broadcast address"),
        pytest.param("10.89.0.77", id="refused for another reason"),
    ],
)
async def test_a_route_that_the_kernel_refuses_costs_nobody_his(monkeypatch: pytest.MonkeyPatch, ip: str) -> None:
    """Each sync of each node failed: no route to others, no rule, and after five of them the node was NotReady."""
    replace_route = FakeLinks.replace_route

    def refusing(links: FakeLinks, route: NodeRoute, protocol: int) -> None:
        if route.gateway == ip_address(ip):
            raise Permanent("Invalid argument (Nexthop has invalid gateway)", step="add route")
        replace_route(links, route, protocol)

    monkeypatch.setattr(FakeLinks, "replace_route", refusing)
    bench = Bench()
    first, last = (replace(PEER, name=name, pod_cidrs=(ip_network(cidr),)) for name, cidr in LATER.items())
    bench.network.set_nodes([ME, first, evil(ip, "10.244.2.0/24"), last])
    await bench.network.sync()
    assert bench.routes() == ["10.244.1.0/24 10.89.0.12", "10.244.3.0/24 10.89.0.12"]
    assert bench.network.waiting == "" and bench.rules and bench.published


async def test_what_is_refused_is_tried_again_once_however_many_syncs_it_was_refused_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each sync asked for another one a minute later: those of a burst were repeated each minute, for ever."""

    def refusing(links: FakeLinks, route: NodeRoute, protocol: int) -> None:
        raise Permanent("Invalid argument", step="add route")

    monkeypatch.setattr(FakeLinks, "replace_route", refusing)
    bench, handles, loop = Bench(), list[asyncio.TimerHandle](), asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(seconds: float, call: Any, *args: Any) -> asyncio.TimerHandle:
        handles.append(call_later(seconds, call, *args))
        return handles[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    bench.network.set_nodes([ME, PEER])
    for _ in range(5):
        await bench.network.sync()
    assert [one.cancelled() for one in handles] == [True, True, True, True, False]
    bench.network.set_nodes([ME])
    await bench.network.sync()
    assert handles[-1].cancelled()


def test_a_broadcast_address_is_no_next_hop() -> None:
    """The kernel takes none: what it refuses is tried again and again."""
    nodes = [ME, evil("10.89.0.255", "10.244.2.0/24"), replace(PEER, internal_ips=(ip_address("10.89.0.254"),))]
    plan = routes.plan(ME, nodes, LINK, [], ME.pod_cidrs, cluster_cidrs=PODS)
    assert [str(one.gateway) for one in plan.add] == ["10.89.0.254"]
    assert "names 10.89.0.255 among its addresses, which is a broadcast address: not used" in plan.skipped[0]


LATER = {"a": "10.244.1.0/24", "z": "10.244.3.0/24"}


async def test_a_pod_whose_link_cannot_be_changed_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one with NET_ADMIN that changes its addresses without end, so that no list of them is ever whole."""
    bench = Bench()
    bench.network.set_nodes([ME, FAR])
    await bench.network.sync()
    pod, key = bench.kernel.new_namespace(), AttachmentKey("c1", "eth0")
    with bench.kernel.open() as node:
        made = LinkPlan("nw0", host_ifname("nodewright", key), "eth0", 1400, (ip_interface("10.244.0.5/24"),), ())
        node.add_veth(made, bench.kernel.namespaces[NODE].links["nw0"], pod)
    addresses = FakeLinks.addresses

    def changing(links: FakeLinks, index: int = 0) -> list[tuple[int, Interface]]:
        if links._number == pod:
            raise Temporary("the kernel's list changed 8 times while it was read")
        return addresses(links, index)

    monkeypatch.setattr(FakeLinks, "addresses", changing)
    bench.attachments = [Attachment(key, (ip_address("10.244.0.5"),), netns=f"/run/netns/{pod}")]
    bench.paths[FAR.internal_ips[0]] = 1300
    await bench.network.sync()
    assert bench.network.waiting == "" and bench.kernel.namespaces[NODE].links["nwvx0"].mtu == 1250


async def test_a_node_that_changes_its_address_without_end_has_a_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each change was followed at once by each node: links, routes and a dozen processes for its rules."""
    bench = Bench()
    began: list[float] = []

    async def takes_a_second() -> None:
        began.append(bench.clock.monotonic())
        await bench.clock.sleep(1.0)

    monkeypatch.setattr(bench.network, "_sync", takes_a_second)
    task = asyncio.create_task(bench.network.run())
    for number in range(200):
        bench.network.set_nodes([ME, evil(f"10.89.0.{number + 1}")])
        await bench.clock.advance(0.25)
    await cancel_and_wait(task)
    assert 8 <= len(began) <= 12, began


@pytest.mark.parametrize("ip", ["10.244.0.9", "10.244.1.9"], ids=["of a pod beside", "of a pod elsewhere"])
async def test_no_tunnel_leads_through_the_pod_network_itself(ip: str) -> None:
    """The path to such a node had the MTU of the pods, so that these got less with each sync, and with it that path."""
    bench = Bench()
    bench.network.set_nodes([ME, PEER, evil(f"{ip} 198.51.100.9", "10.244.2.0/24")])
    bench.paths[ip_address(ip)] = 1200
    await bench.network.sync()
    space = bench.kernel.namespaces[NODE]
    assert [str(one.remote) for _, one in space.forwards] == ["198.51.100.9"]
    assert space.links["nw0"].mtu == 1400
