"""Links, addresses and routes of a cluster."""

from __future__ import annotations

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan.wiring import node_wiring, wiring
from controlplane.machine.model import HOST, WIRE, Address, Bridge, Route, Up, Veth

CLUSTER = Cluster("lab", "10.89.3.0/24", Options(nodes=2, uplink=True))
ISOLATED = Cluster("lab", "10.89.3.0/24", Options(nodes=2, uplink=False))


def test_every_link_is_made_before_it_is_used() -> None:
    made = set()
    for wish in wiring(CLUSTER):
        match wish:
            case Bridge():
                made.add((wish.space, wish.name))
            case Veth():
                assert (wish.peer_space, wish.bridge) in made
                made |= {(wish.space, wish.name), (wish.peer_space, wish.peer)}
            case Up() | Address():
                assert wish.name == "lo" or (wish.space, wish.name) in made


def test_host_and_nodes_meet_on_the_wire() -> None:
    ports = [wish.peer for wish in wiring(CLUSTER) if isinstance(wish, Veth) and wish.peer_space == WIRE]
    assert ports == ["host", "node1", "node2"]
    assert Address(HOST, "nw-lab", "10.89.3.1/24") in wiring(CLUSTER)
    assert Address("node2", "eth0", "10.89.3.12/24") in wiring(CLUSTER)


def test_only_an_uplink_gives_a_default_route() -> None:
    with_uplink = [w for w in wiring(CLUSTER) if isinstance(w, Route) and w.destination == "0.0.0.0/0"]
    assert [route.via for route in with_uplink] == ["10.89.3.1", "10.89.3.1"]
    assert not [w for w in wiring(ISOLATED) if isinstance(w, Route) and w.destination == "0.0.0.0/0"]


def test_dead_pod_and_service_addresses_end_on_the_node() -> None:
    wishes = node_wiring(ISOLATED, ISOLATED.nodes[0])
    pods = next(w for w in wishes if isinstance(w, Route) and w.destination == "10.244.0.0/16")
    assert (pods.via, pods.dev) == ("", "")  # unreachable
    services = next(w for w in wishes if isinstance(w, Route) and w.destination == "10.96.0.0/16")
    assert (services.dev, services.source) == ("eth0", "10.89.3.11")


DUAL = Cluster("lab", "10.89.3.0/24", Options(nodes=2, ip_family="dual", uplink=False))
ROUTED = Cluster("lab", "10.89.3.0/24", Options(nodes=2, ip_family="dual", routed=True, uplink=True))


def test_dual_stack_gives_everything_of_both_families() -> None:
    wishes = node_wiring(DUAL, DUAL.nodes[0])
    assert Address("node1", "eth0", "fd00:a59:300::b/64") in wishes
    assert Route("node1", "fd00:10:244::/56", metric=1 << 24) in wishes
    assert Route("node1", "fd00:10:96::/112", dev="eth0", source="fd00:a59:300::b", metric=1 << 24) in wishes
    assert DUAL.api_url == "https://10.89.3.11:6443"
    assert (DUAL.pod_cidrs[0], DUAL.service_cidrs[1]) == ("10.244.0.0/16", "fd00:10:96::/112")


def test_ipv6_alone() -> None:
    cluster = Cluster("lab", "10.89.3.0/24", Options(nodes=1, ip_family="ipv6"))
    assert cluster.api_url == "https://[fd00:a59:300::b]:6443"
    assert (cluster.dns_service, cluster.kubernetes_service) == ("fd00:10:96::a", "fd00:10:96::1")
    assert not [w for w in wiring(cluster) if isinstance(w, Address | Route) and "." in f"{w}".replace("via=", "")]


def test_routed_nodes_share_no_network() -> None:
    wishes = wiring(ROUTED)
    assert not [w for w in wishes if isinstance(w, Bridge)]
    own = [w.address for w in wishes if isinstance(w, Address) and w.space == "node1"]
    assert own == ["10.89.3.11/32", "fd00:a59:300::b/128"]
    assert Route("node1", "10.89.3.0/24", via="10.89.3.2") in wishes
    assert Route("wire", "10.89.3.12/32", dev="node2") in wishes
    assert Route("wire", "0.0.0.0/0", via="10.89.3.1") in wishes
    assert [w.via for w in wishes if isinstance(w, Route) and w.space == "node2" and w.destination == "0.0.0.0/0"] == [
        "10.89.3.2"
    ]
