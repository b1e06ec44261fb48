"""How `trace` reads rules and routes: two nodes with a pod each, one Service, this machine at .1 of their link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.explain import dns_names, paths_text, reasons
from cli.explain.dns_names import DnsName
from cli.explain.facts import Facts, title
from cli.explain.listening import Listening
from cli.explain.places import sender, target
from cli.explain.walk import Machine, Path, Rules, paths
from controlplane.machine.model import Listener
from nodelib.errors import Invalid, NodewrightError, NotFound, WrongUsage
from nodelib.firewall.fib import Route
from nodelib.firewall.trace_model import Fib, Hop, Packet
from tests.builders.pods import pod_json
from tests.builders.services import endpoint, endpoint_slice, node, service
from tests.fakes.fake_iptables import FakeIptables

HOST, NODES, PODS = "192.0.2.1", {"node1": "192.0.2.11", "node2": "192.0.2.12"}, {"a": "10.0.1.2", "b": "10.0.2.2"}
CLUSTER_IP = "10.9.0.7"
_DNAT = "-j DNAT --to-destination 10.0.2.2:8080"
NAT = (
    f"*nat\n-A PREROUTING -d {CLUSTER_IP} -p tcp {_DNAT}\n"
    f"-A OUTPUT -d {CLUSTER_IP} -p tcp -m tcp --dport 80 {_DNAT}\nCOMMIT\n"
)
FIRST, SECOND = (Route("unicast", "eth0", address) for address in NODES.values())
DIRECT, NONE = Route("unicast", "nw0", "", "REACHABLE"), Route("none")


FACTS = Facts.of(
    [
        service("web", CLUSTER_IP, namespace="shop", clusterIPs=[CLUSTER_IP], ports=[{"name": "http", "port": 80}]),
        service("alias", namespace="shop", type="ExternalName", externalName="web.shop.svc.cluster.local"),
        service("far", namespace="shop", type="ExternalName", externalName="example.com"),
        service("each", "None", namespace="shop", ports=[{"port": 8080}]),
    ],
    [
        endpoint_slice(
            "each", [{**endpoint(PODS["b"]), "hostname": "b-0"}], namespace="shop", ports=[{"name": "", "port": 8080}]
        )
    ],
    [
        pod_json(
            name,
            meta={
                "namespace": "shop",
                "labels": {"pod-template-hash": "77"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": f"app-{name}-77"}],
            },
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


def everybody(address: str) -> tuple[Listener, ...]:
    """Whoever is asked listens on the ports of the pods and of the kubelets."""
    return tuple(Listener("tcp", "0.0.0.0", port) for port in (8080, 10250))


def traced(
    come: str, to: str, *, listening: Listening = everybody, **more: dict[str, Route]
) -> tuple[list[Path], list[str]]:
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
    found = paths(start, end, rules, FACTS, machine, listening)
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


def test_who_asked_a_service_before_it_had_rules_reaches_it_afterwards() -> None:
    """The neighbour entry of its address has failed on the link; the rules lead away from it."""
    asked = {CLUSTER_IP: Route("unicast", "eth0", "", "FAILED")}
    found, said = traced("node1", "web", node1=asked)
    assert found[0].arrived and said[0] == "ARRIVES"
    assert traced("node1", f"{CLUSTER_IP}:81", node1=asked)[1][0] == "UNREACHABLE", "no rule leads away from there"


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


def test_the_mark_of_a_connection_is_not_that_of_packets_to_be_masqueraded() -> None:
    hop = Hop("ip nodewright-policy", "known", "ct mark set ct mark & 49152 | 8192")
    assert reasons.reason(hop, FACTS) == ""
    assert reasons.reason(hop._replace(text="meta mark set meta mark | 16384"), FACTS).startswith("its source")


@pytest.mark.parametrize(
    ("to", "listens", "why"),
    [
        ("web", (), "in pod shop/b nobody listens on 8080/tcp"),
        ("b:8080", (Listener("tcp", "0.0.0.0", 9),), "in pod shop/b nobody listens on 8080/tcp, only on 9/tcp"),
        ("b:8080", (Listener("tcp", "127.0.0.1", 8080),), "only at 127.0.0.1"),
        ("node2:22", (Listener("tcp", "::", 10250),), "in node node2 nobody listens on 22/tcp, only on 10250/tcp"),
    ],
    ids=["a Service's pod", "a pod", "loopback", "a node"],
)
def test_a_closed_port_at_the_end_is_no_arrival(to: str, listens: tuple[Listener, ...], why: str) -> None:
    route = {NODES["node2"]: SECOND}
    found, said = traced("a", to, node1=route)
    assert found[0].arrived is (to != "node2:22")
    found, said = traced("a", to, listening=lambda address: listens, node1=route)
    assert not found[0].arrived and found[0].closed
    assert said[0] == "REFUSED" and why in said[1] and any("  do: " in line for line in said)


def test_what_cannot_be_looked_at_is_taken_to_listen() -> None:
    found, said = traced("a", "web", listening=lambda address: None)
    assert found[0].arrived and said[0] == "ARRIVES"


@pytest.mark.parametrize(
    ("to", "address", "port"),
    [
        ("web", CLUSTER_IP, 80),
        ("shop/web:http", CLUSTER_IP, 80),
        ("svc/web", CLUSTER_IP, 80),
        ("service/shop/web", CLUSTER_IP, 80),
        ("web.shop", CLUSTER_IP, 80),
        ("web.shop.svc", CLUSTER_IP, 80),
        ("web.shop.svc.cluster.local", CLUSTER_IP, 80),
        ("web.shop.svc.cluster.local.:80", CLUSTER_IP, 80),
        ("_http._tcp.web.shop.svc.cluster.local", CLUSTER_IP, 80),
        ("alias", CLUSTER_IP, 80),
        ("b-0.each.shop.svc.cluster.local:8080", PODS["b"], 8080),
        ("10-0-2-2.shop.pod.cluster.local:8080", PODS["b"], 8080),
        ("b:8080", PODS["b"], 8080),
        ("pod/b:8080", PODS["b"], 8080),
        ("deploy/app-b:8080", PODS["b"], 8080),
        ("shop/deployment/app-b:8080", PODS["b"], 8080),
        ("shop/svc/web", CLUSTER_IP, 80),
        ("node2:10250", NODES["node2"], 10250),
        ("node/node2:10250", NODES["node2"], 10250),
        ("10.0.2.2:8080", PODS["b"], 8080),
    ],
    ids=str,
)
def test_what_a_target_may_be(to: str, address: str, port: int) -> None:
    start = sender("a", FACTS, "shop", HOST)
    found = target(to, FACTS, "shop", start, "")
    assert (found.address, found.port) == (address, port)


@pytest.mark.parametrize(
    ("to", "error", "says"),
    [
        ("nobody", NotFound, "There is no"),
        ("web.other.svc.cluster.local", NotFound, "no Service"),
        ("c-9.each.shop.svc.cluster.local", NotFound, "has the host name c-9"),
        ("example.com", NotFound, "For a host outside, give its address."),
        ("node2", Invalid, "Give node2:PORT"),
        ("192.0.2.9", WrongUsage, "has no port. Give ADDRESS:PORT, such as 192.0.2.9:443."),
        ("[2001:db8::9]", WrongUsage, "such as [2001:db8::9]:443."),
        ("far", Invalid, "Trace to the address of that host."),
        ("pod/web", NotFound, "no Service, pod or node"),
        ("deploy/nobody", NotFound, "no Service, pod or node"),
        ("app-b", NotFound, "There is deployment app-b in namespace shop: give shop/deployment/app-b"),
        ("web:https", Invalid, "Its ports are http=80/tcp."),
    ],
    ids=str,
)
def test_a_target_that_is_none(to: str, error: type[NodewrightError], says: str) -> None:
    with pytest.raises(error) as caught:
        target(to, FACTS, "shop", sender("a", FACTS, "shop", HOST), "")
    assert says.lower() in str(caught.value).lower() and caught.value.action


def test_what_another_namespace_has_is_named() -> None:
    start = sender("a", FACTS, "shop", HOST)
    for asked in (lambda: target("web", FACTS, "default", start, ""), lambda: sender("a", FACTS, "default", HOST)):
        with pytest.raises(NotFound, match="Namespace default has none of that name; give shop/"):
            asked()
    with pytest.raises(NotFound, match="lists pods and nodes"):
        sender("nobody", FACTS, "default", HOST)


@pytest.mark.parametrize("text", ["deploy/app-a", "deployment/app-a"])
def test_the_workload_of_another_namespace_is_named(text: str) -> None:
    says = "Namespace default has none of that name; give shop/deployment/app-a, or that namespace with -n."
    start = sender("a", FACTS, "shop", HOST)
    for asked in (lambda: target(text, FACTS, "default", start, ""), lambda: sender(text, FACTS, "default", HOST)):
        with pytest.raises(NotFound) as caught:
            asked()
        assert caught.value.action == says
    with pytest.raises(NotFound, match="lists pods and nodes"):
        sender("sts/app-a", FACTS, "default", HOST)


@pytest.mark.parametrize("text", ["app-a", "shop/app-a"])
def test_a_workload_without_its_kind_is_named(text: str) -> None:
    with pytest.raises(NotFound, match="There is deployment app-a in namespace shop: give shop/deployment/app-a"):
        sender(text, FACTS, "shop", HOST)


@pytest.mark.parametrize(
    ("come", "address"),
    [
        ("a", PODS["a"]),
        ("deploy/app-a", PODS["a"]),
        ("shop/deploy/app-a", PODS["a"]),
        ("rs/shop/app-a-77", PODS["a"]),
        ("b-0.each.shop.svc.cluster.local", PODS["b"]),
        ("node/node1", NODES["node1"]),
        ("outside", HOST),
    ],
    ids=str,
)
def test_what_a_sender_may_be(come: str, address: str) -> None:
    assert sender(come, FACTS, "shop", HOST).address == address


def test_a_service_sends_nothing() -> None:
    with pytest.raises(Invalid, match="a Service sends nothing"):
        sender("web", FACTS, "shop", HOST)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("web.shop", DnsName("shop", "web")),
        ("Web.Shop.svc.Cluster.Local", DnsName("shop", "web")),
        ("fd00--2.shop.pod", DnsName("shop", address="fd00::2")),
        ("web", None),
        ("a.b.c", None),
        ("x.shop.pod", None),
        ("..svc", None),
        ("a.b.c.d.svc", None),
    ],
    ids=str,
)
def test_names_of_the_clusters_dns(text: str, wanted: DnsName | None) -> None:
    assert dns_names.parse(text, "cluster.local") == wanted


@pytest.mark.parametrize(
    ("chain", "rule", "said", "who"),
    [
        (
            "group-egress-1",
            'counter drop comment "isolated by shop/out"',
            "  dropped: the pod is isolated by shop/out, and no rule of theirs allows this (egress)",
            "shop/a",
        ),
        (
            "group-ingress-1",
            'counter drop comment "isolated by shop/in"',
            "  dropped: the pod is isolated by shop/in, and no rule of theirs allows this (ingress)",
            "shop/b",
        ),
        (
            "group-ingress-1",
            'counter drop comment "isolated by shop/in shop/web shop/z"',
            "  dropped: the pod is isolated by shop/in, shop/web, shop/z, and no rule of theirs allows this (ingress)",
            "shop/b",
        ),
    ],
)
def test_what_a_policy_drops_is_not_blamed_on_the_service(chain: str, rule: str, said: str, who: str) -> None:
    found, _ = traced("a", "web")
    (pod,) = [one for one in FACTS.pods if title(one) == "shop/b"]
    last = found[0].legs[-1]
    hop = Hop("inet nodewright-policy", chain, rule)
    dropped = replace(last.outcome, verdict="DROP", trail=(hop,), to=f"{pod['status']['podIP']}:8080")
    path = replace(found[0], arrived=False, legs=(*found[0].legs[:-1], replace(last, outcome=dropped)))
    start = sender("a", FACTS, "shop", HOST)
    lines = paths_text.verdict(start, target("web", FACTS, "shop", start, ""), [path], FACTS, "node1", "lab")
    assert lines[:3] == [
        "DROPPED",
        said,
        f"  do: `./nodewright policy explain {who} --name lab` lists what is allowed.",
    ]
    assert not any("says where it leads" in line for line in lines)
