from __future__ import annotations

from controlplane.links import HOST, WIRE, Address, Bridge, Route, Rule, Up, Veth
from controlplane.model import Cluster, Options
from controlplane.plan.wiring import node_wiring, wiring

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
    with_uplink = [w for w in wiring(CLUSTER) if isinstance(w, Route) and w.destination == "default"]
    assert [route.via for route in with_uplink] == ["10.89.3.1", "10.89.3.1"]
    assert not [w for w in wiring(ISOLATED) if isinstance(w, Route) and w.destination == "default"]


def test_dead_pod_and_service_addresses_end_on_the_node() -> None:
    wishes = node_wiring(ISOLATED, "node1", "10.89.3.11")
    pods = next(w for w in wishes if isinstance(w, Route) and w.destination == "10.244.0.0/16")
    assert (pods.via, pods.dev) == ("", "")  # unreachable
    services = next(w for w in wishes if isinstance(w, Route) and w.destination == "10.96.0.0/16")
    assert (services.dev, services.source) == ("lo", "10.89.3.11")
    local, forwarded = [w for w in wishes if isinstance(w, Rule)]
    assert local.iif == "lo"
    assert forwarded.iif == ""
    assert local.priority < forwarded.priority
