"""How `trace` reads rules and routes: two nodes with a pod each, one Service, this machine at .1 of their link."""

from __future__ import annotations

import pytest

from cli.explain import paths_text, reasons
from cli.explain.facts import Facts
from cli.explain.places import sender, target
from cli.explain.walk import Machine, Path, Rules, paths
from nodelib.firewall.fake import FakeIptables
from nodelib.firewall.fib import Route
from nodelib.firewall.trace_model import Fib, Hop, Packet
from tests.builders.pods import pod_json
from tests.builders.services import node, service

HOST, NODES, PODS = "192.0.2.1", {"node1": "192.0.2.11", "node2": "192.0.2.12"}, {"a": "10.0.1.2", "b": "10.0.2.2"}
CLUSTER_IP = "10.9.0.7"
NAT = f"*nat\n-A PREROUTING -d {CLUSTER_IP} -p tcp -j DNAT --to-destination 10.0.2.2:8080\nCOMMIT\n"
FIRST, SECOND = (Route("unicast", "eth0", address) for address in NODES.values())
DIRECT, NONE = Route("unicast", "nw0", "", "REACHABLE"), Route("none")


FACTS = Facts.of(
    [service("web", CLUSTER_IP, namespace="shop", clusterIPs=[CLUSTER_IP], ports=[{"port": 80}])],
    [],
    [
        pod_json(
            name,
            meta={"namespace": "shop"},
            status={"podIP": PODS[name], "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            nodeName=place,
        )
        for name, place in (("a", "node1"), ("b", "node2"))
    ],
    [node(name, address=address) for name, address in NODES.items()],
    [],
)
ROUTES = {
    "node1": {NODES["node1"]: Route("local"), "10.0.1.2": DIRECT, "10.0.2.2": SECOND},
    "node2": {NODES["node2"]: Route("local"), "10.0.2.2": DIRECT, "10.0.1.2": FIRST},
    "": {NODES["node1"]: Route("unicast", "nw-lab"), NODES["node2"]: Route("unicast", "nw-lab")},
}


def fib(space: str, more: dict[str, Route]) -> Fib:
    def ask(packet: Packet) -> Route:
        known = {**ROUTES[space], **more}
        return known.get(packet.destination, NONE)

    return ask


def traced(come: str, to: str, **more: dict[str, Route]) -> tuple[list[Path], list[str]]:
    """The paths and the printed lines; `more`: other routes by node, `host` for this machine's."""
    rules = {}
    for name, address in NODES.items():
        fake = FakeIptables()
        fake.load(NAT)
        links = frozenset({"lo", "eth0", "nw0"})
        rules[name] = Rules(name, fake.content(), (), frozenset({address}), links, fib(name, more.get(name, {})))
    machine = Machine((HOST,), (HOST,), "nw-lab", fib("", more.get("host", {})))
    start = sender(come, FACTS, "shop", HOST)
    end = target(to, FACTS, "shop", start, "")
    found = paths(start, end, rules, FACTS, machine)
    return found, paths_text.lines(start, end, found, FACTS, "node1", verbose=False)


def test_a_service_is_followed_to_the_other_node_by_its_route() -> None:
    found, said = traced("a", "web")
    assert [[leg.node for leg in path.legs] for path in found] == [["node1", "node2"]]
    assert found[0].legs[0].packet.interface == "nw0" and found[0].legs[1].packet.interface == "eth0"
    assert said[0] == "ARRIVES" and any("by eth0 to 192.0.2.12 (node node2)" in line for line in said)


@pytest.mark.parametrize(
    ("route", "word", "why"),
    [
        (NONE, "UNREACHABLE", "there is no route to it"),
        (Route("unreachable"), "UNREACHABLE", "unreachable route"),
        (Route("blackhole"), "DISCARDED", "blackhole"),
        (Route("filtered"), "DISCARDED", "rp_filter"),
        (Route("unicast", "lo"), "DISCARDED", "ends on lo"),
        (Route("unicast", "nw0", "", "FAILED"), "UNREACHABLE", "nobody answers"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_route_that_leads_nowhere_ends_the_packet(route: Route, word: str, why: str) -> None:
    found, said = traced("a", "web", node1={"10.0.2.2": route})
    assert not found[0].arrived and said[0] == word
    assert why in said[1] and said[1].strip().startswith("node1:")


def test_a_node_looks_its_own_packets_route_up_before_its_rules() -> None:
    found, said = traced("node1", "8.8.8.8:53")
    assert said[0] == "UNREACHABLE" and not found[0].legs[0].outcome.trail
    onward = {"8.8.8.8": Route("unicast", "eth0", HOST)}
    found, said = traced("node1", "8.8.8.8:53", node1=onward)
    assert not found[0].arrived and "on this machine: to 8.8.8.8: there is no route to it" in said[1]
    found, said = traced(
        "node1", "8.8.8.8:53", node1=onward, host={"8.8.8.8": Route("unicast", "wan0", "198.51.100.1")}
    )
    assert found[0].arrived and said[0] == "LEAVES THE CLUSTER" and "wan0" in said[1]


def test_a_cluster_ip_is_not_known_outside() -> None:
    found, said = traced("outside", "web", host={CLUSTER_IP: Route("unicast", "wan0", "198.51.100.1")})
    assert not found[0].arrived and said[0] == "NEVER COMES TO A NODE"
    assert "route to 10.9.0.7 (Service shop/web) does not lead to a node: by wan0" in said[1] and "NodePort" in said[2]
    found, said = traced("outside", "web", host={CLUSTER_IP: Route("unicast", "nw-lab", NODES["node1"])})
    assert found[0].arrived, "somebody gave this machine a route through a node"


def test_an_address_of_nobody_on_the_link() -> None:
    found, said = traced("a", "10.9.0.99:80", node1={"10.9.0.99": Route("unicast", "eth0")})
    assert not found[0].arrived and "no node, pod or Service has the address 10.9.0.99" in said[1]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ('jump mark-for-masquerade comment "masquerade clusterIP traffic"', "its source will be replaced"),
        ("meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade fully-random", "source becomes"),
    ],
    ids=["marked", "masqueraded"],
)
def test_a_comment_is_no_statement(rule: str, reason: str) -> None:
    """The rule that only marks has the word masquerade in its comment; the one that masquerades also sets a mark."""
    hop = Hop("ip nodewright-proxy", "services", rule)
    assert reasons.reason(hop, FACTS).startswith(reason)
