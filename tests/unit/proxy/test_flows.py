"""Where packets go: the flow tables of upstream's iptables/proxier_test.go, traced through the rules of three modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nodelib.firewall.trace import Node, Packet
from nodelib.json_values import Json
from proxy.plan.context import Context, LocalDetector, by_interface
from tests.builders.services import endpoint, endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.fakes.nft_trace import Tracer
from tests.fakes.userspace_trace import UserspaceTracer
from tests.unit.proxy.build import (
    BLOCKED_CLIENT,
    CLIENT,
    CONTEXT,
    HERE,
    NODE,
    NODE_IP,
    NODE_IP_TWO,
    POD,
    flow,
    installed,
    nft_installed,
    userspace_installed,
)

IP = "172.30.0.41"
EXTERNAL, BALANCER = "192.168.99.11", "1.2.3.4"
NODE_PORT = 30080
PORTS = [{"name": "p80", "port": 80, "protocol": "TCP", "nodePort": NODE_PORT}]
LOCAL, REMOTE = endpoint("10.180.0.1", HERE), endpoint("10.180.1.2", "there")
TERMINATING: Json = {"ready": False, "serving": True, "terminating": True}
NO_LOCALHOST = {"node port on localhost": "passes"}  # upstream's nftables mode has none either
# Policy Local binds pods and the node itself too in userspace mode: a socket does not know where its client is.
NEAR = ("pod to ", "node to ")
Row = tuple[str, str, str, int, str]


@dataclass(frozen=True)
class Modes:
    """The same cluster in each mode."""

    fake: FakeIptables
    nft: Tracer
    user: UserspaceTracer


def world_of(*objects: Json, ctx: Context = CONTEXT) -> Modes:
    user = userspace_installed(*objects, ctx=ctx)
    return Modes(installed(*objects, ctx=ctx), nft_installed(*objects, ctx=ctx), user)


def by_socket(expected: str) -> str:
    """The same in userspace mode: the proxy itself is who endpoints see, and who refuses."""
    return "reset" if expected in ("REJECT", "DROP") else expected.removesuffix(" masq")


def assert_flows(
    world: Modes,
    rows: list[Row],
    node: Node = NODE,
    nft: Mapping[str, str] | None = None,
    user: Mapping[str, str] | None = None,
) -> None:
    """Each row's packet ends where it says, in every mode. `nft`, `user`: other ends in these modes, by label."""
    wrong = []
    for label, source, to, port, expected in rows:
        packet = Packet(source, to, port, "tcp", interface="" if node.is_local(source) else "eth0")
        meant = (nft or {}).get(label, expected)
        found = {"iptables": (flow(world.fake, source, to, port, node=node), expected)}
        found["nftables"] = (world.nft.flow(packet, node), meant)
        found["userspace"] = (world.user.flow(packet, node), (user or {}).get(label, by_socket(expected)))
        for mode, (got, wanted) in found.items():
            if got != wanted:
                wrong.append(f"{mode}: {label}: {source} -> {to}:{port}: expected {wanted!r}, got {got!r}")
    assert not wrong, "\n".join(wrong)


def balanced(*endpoints: Json, **spec: Any) -> Modes:
    obj = service("svc", IP, type="LoadBalancer", ports=PORTS, externalIPs=[EXTERNAL], lb=[BALANCER], **spec)
    return world_of(obj, endpoint_slice("svc", endpoints))


def test_cluster_ip() -> None:
    fake = world_of(
        service("one", IP),
        endpoint_slice("one", [LOCAL]),
        service(
            "two", "172.30.0.42", ports=[{"name": "p80", "port": 80}, {"name": "alt", "port": 8443, "targetPort": 443}]
        ),
        endpoint_slice(
            "two",
            ["10.180.0.1", "10.180.2.1"],
            ports=[{"name": "p80", "port": 8080}, {"name": "alt", "port": 8443}],
        ),
    )
    assert_flows(
        fake,
        [
            ("pod", POD, IP, 80, "10.180.0.1:80"),
            ("node", NODE_IP, IP, 80, "10.180.0.1:80 masq"),
            ("outside", CLIENT, IP, 80, "10.180.0.1:80 masq"),
            ("hairpin", "10.180.0.1", IP, 80, "10.180.0.1:80 masq"),
            ("another port", POD, IP, 81, "passes"),
            ("two endpoints", POD, "172.30.0.42", 80, "10.180.0.1:8080, 10.180.2.1:8080"),
            ("a port of another number", POD, "172.30.0.42", 8443, "10.180.0.1:8443, 10.180.2.1:8443"),
        ],
        nft={"another port": "REJECT"},
    )
    assert flow(fake.fake, POD, IP, 80, protocol="udp") == "passes"


@pytest.mark.parametrize(
    ("change", "pod", "client"),
    [
        ({"masquerade_all": True}, True, True),
        ({"detector": LocalDetector()}, False, False),
        ({"detector": by_interface("eth+")}, False, False),
        ({"detector": by_interface("cni0")}, True, True),
    ],
    ids=["masqueradeAll", "no detector", "interface prefix", "bridge"],
)
def test_whose_traffic_to_the_cluster_ip_is_masqueraded(change: Json, pod: bool, client: bool) -> None:
    fake = world_of(service("svc", IP), endpoint_slice("svc", ["10.180.0.1"]), ctx=replace(CONTEXT, **change))
    rows: list[Row] = [
        (who, source, IP, 80, "10.180.0.1:80 masq" if masqueraded else "10.180.0.1:80")
        for who, source, masqueraded in (("pod", POD, pod), ("client", CLIENT, client))
    ]
    assert_flows(fake, rows)


def test_external_cluster_policy() -> None:
    fake = balanced(LOCAL, REMOTE)
    both = "10.180.0.1:80, 10.180.1.2:80"
    rows: list[Row] = [("cluster IP", POD, IP, 80, both)]
    for to, port in ((EXTERNAL, 80), (BALANCER, 80), (NODE_IP, NODE_PORT), (NODE_IP_TWO, NODE_PORT)):
        rows += [
            (f"{who} to {to}", source, to, port, f"{both} masq")
            for who, source in (("pod", POD), ("node", NODE_IP), ("client", CLIENT))
        ]
    assert_flows(
        fake, [*rows, ("node port on localhost", "127.0.0.1", "127.0.0.1", NODE_PORT, f"{both} masq")], nft=NO_LOCALHOST
    )


def test_external_local_policy() -> None:
    fake = balanced(LOCAL, REMOTE, externalTrafficPolicy="Local")
    both = "10.180.0.1:80, 10.180.1.2:80"
    rows: list[Row] = [("cluster IP", POD, IP, 80, both)]
    for to, port in ((EXTERNAL, 80), (BALANCER, 80), (NODE_IP, NODE_PORT)):
        rows += [
            (f"pod to {to}", POD, to, port, both),
            (f"node to {to}", NODE_IP, to, port, f"{both} masq"),
            (f"client to {to}", CLIENT, to, port, "10.180.0.1:80"),
        ]
    assert_flows(fake, rows, user={row[0]: "10.180.0.1:80" for row in rows if row[0].startswith(NEAR)})


def test_external_local_policy_without_local_endpoint() -> None:
    fake = balanced(REMOTE, externalTrafficPolicy="Local")
    rows: list[Row] = [("cluster IP", POD, IP, 80, "10.180.1.2:80")]
    for to, port in ((EXTERNAL, 80), (BALANCER, 80), (NODE_IP, NODE_PORT)):
        rows += [
            (f"pod to {to}", POD, to, port, "10.180.1.2:80"),
            (f"node to {to}", NODE_IP, to, port, "10.180.1.2:80 masq"),
            (f"client to {to}", CLIENT, to, port, "DROP"),
        ]
    assert_flows(fake, rows, user={row[0]: "reset" for row in rows if row[0].startswith(NEAR)})


def test_internal_local_policy() -> None:
    with_local = world_of(service("svc", IP, internalTrafficPolicy="Local"), endpoint_slice("svc", [LOCAL, REMOTE]))
    assert_flows(with_local, [("pod", POD, IP, 80, "10.180.0.1:80"), ("node", NODE_IP, IP, 80, "10.180.0.1:80 masq")])
    without = world_of(service("svc", IP, internalTrafficPolicy="Local"), endpoint_slice("svc", [REMOTE]))
    assert_flows(without, [("pod", POD, IP, 80, "DROP"), ("node", NODE_IP, IP, 80, "DROP")])


def test_no_endpoints() -> None:
    fake = balanced()
    rows: list[Row] = [("cluster IP", POD, IP, 80, "REJECT"), ("node to cluster IP", NODE_IP, IP, 80, "REJECT")]
    for to, port in ((EXTERNAL, 80), (BALANCER, 80), (NODE_IP, NODE_PORT)):
        rows += [(f"pod to {to}", POD, to, port, "REJECT"), (f"client to {to}", CLIENT, to, port, "REJECT")]
    assert_flows(fake, rows)


def test_endpoints_that_are_not_ready_are_none() -> None:
    assert_flows(balanced(endpoint("10.180.0.1", ready=False)), [("pod", POD, IP, 80, "REJECT")])


def test_load_balancer_source_ranges() -> None:
    fake = balanced(LOCAL, loadBalancerSourceRanges=["203.0.113.0/25"])
    assert_flows(
        fake,
        [
            ("allowed", CLIENT, BALANCER, 80, "10.180.0.1:80 masq"),
            ("blocked", BLOCKED_CLIENT, BALANCER, 80, "DROP"),
            ("pod is blocked as well", POD, BALANCER, 80, "DROP"),
            ("node ports are not subject to ranges", BLOCKED_CLIENT, NODE_IP, NODE_PORT, "10.180.0.1:80 masq"),
            ("nor external IPs", BLOCKED_CLIENT, EXTERNAL, 80, "10.180.0.1:80 masq"),
            ("nor the cluster IP", POD, IP, 80, "10.180.0.1:80"),
        ],
        # Not redirected, so not served; there is no filter.
        user={"blocked": "passes", "pod is blocked as well": "passes"},
    )


def test_source_ranges_that_have_the_node_let_its_balancer_address_in() -> None:
    fake = balanced(LOCAL, loadBalancerSourceRanges=["192.168.0.0/24"])
    at_home = Node(NODE.addresses | {BALANCER})
    by_own = "node by the balancer's own address"
    assert_flows(fake, [(by_own, BALANCER, BALANCER, 80, "10.180.0.1:80 masq")], at_home, user={by_own: "passes"})
    assert_flows(
        balanced(LOCAL, loadBalancerSourceRanges=["203.0.113.0/25"]),
        [("not the node", BALANCER, BALANCER, 80, "DROP")],
        at_home,
        user={"not the node": "passes"},
    )


def test_proxy_mode_load_balancer_is_not_short_circuited() -> None:
    obj = service("svc", IP, type="LoadBalancer", ports=PORTS, lb=[{"ip": BALANCER, "ipMode": "Proxy"}])
    fake = world_of(obj, endpoint_slice("svc", [LOCAL]))
    assert_flows(
        fake,
        [("balancer", POD, BALANCER, 80, "passes"), ("node port", CLIENT, NODE_IP, NODE_PORT, "10.180.0.1:80 masq")],
    )


def test_node_ports_on_chosen_addresses() -> None:
    ctx = replace(CONTEXT, node_port_ips=(NODE_IP,), localhost_node_ports=False)
    fake = world_of(service("svc", IP, type="NodePort", ports=PORTS), endpoint_slice("svc", [LOCAL]), ctx=ctx)
    assert_flows(
        fake,
        [
            ("chosen", CLIENT, NODE_IP, NODE_PORT, "10.180.0.1:80 masq"),
            ("another", CLIENT, NODE_IP_TWO, NODE_PORT, "passes"),
            ("localhost", "127.0.0.1", "127.0.0.1", NODE_PORT, "passes"),
        ],
    )


def test_no_node_ports_on_localhost() -> None:
    ctx = replace(CONTEXT, localhost_node_ports=False)
    fake = world_of(service("svc", IP, type="NodePort", ports=PORTS), endpoint_slice("svc", [LOCAL]), ctx=ctx)
    assert_flows(
        fake,
        [
            ("localhost", "127.0.0.1", "127.0.0.1", NODE_PORT, "passes"),
            ("node", CLIENT, NODE_IP, NODE_PORT, "10.180.0.1:80 masq"),
        ],
        # The switch is one of the iptables mode: a socket needs no route_localnet.
        user={"localhost": "10.180.0.1:80"},
    )


def test_loopback_addresses_are_not_reachable_from_outside() -> None:
    fake = world_of(service("svc", IP, type="NodePort", ports=PORTS), endpoint_slice("svc", [LOCAL]))
    # In the other modes nothing sets route_localnet: the kernel itself drops it.
    passes = {"a martian": "passes"}
    assert_flows(fake, [("a martian", CLIENT, "127.0.0.1", 22, "DROP")], nft=passes, user=passes)


def test_health_check_node_port_is_open() -> None:
    fake = balanced(REMOTE, externalTrafficPolicy="Local", healthCheckNodePort=31000)
    assert_flows(fake, [("health check", CLIENT, NODE_IP, 31000, "passes")])
    assert "--dport 31000 -j ACCEPT" in fake.fake.dump()


def test_session_affinity_goes_back_to_the_known_endpoint() -> None:
    fake = world_of(
        service("svc", IP, sessionAffinity="ClientIP"),
        endpoint_slice("svc", ["10.180.0.1", "10.180.0.2"]),
    )
    chain = next(
        name
        for name, rules in fake.fake.content()["nat"].chains.items()
        if "10.180.0.2:80" in str(rules) and "SEP" in name
    )
    assert_flows(fake, [("a new client", POD, IP, 80, "10.180.0.1:80, 10.180.0.2:80")])
    known = Node(NODE.addresses, frozenset({(chain, POD)}))
    fake.nft.remembered[f"{IP}:80", POD] = "10.180.0.2:80"
    assert_flows(
        fake,
        [
            ("a known client", POD, IP, 80, "10.180.0.2:80"),
            ("another", CLIENT, IP, 80, "10.180.0.1:80, 10.180.0.2:80 masq"),
        ],
        known,
        # Its sockets remember, not its rules: test_userspace.py.
        user={"a known client": "10.180.0.1:80, 10.180.0.2:80"},
    )


@pytest.mark.parametrize(
    ("endpoints", "cluster", "external"),
    [
        pytest.param([LOCAL, REMOTE], "10.180.0.1:80, 10.180.1.2:80", "10.180.0.1:80", id="all ready"),
        pytest.param(
            [endpoint("10.180.0.1", HERE, **TERMINATING), REMOTE],
            "10.180.1.2:80",
            "10.180.0.1:80",
            id="the local one terminates",
        ),
        pytest.param(
            [endpoint("10.180.0.1", HERE, **TERMINATING), endpoint("10.180.1.2", "there", **TERMINATING)],
            "10.180.0.1:80, 10.180.1.2:80",
            "10.180.0.1:80",
            id="all terminate and serve",
        ),
        pytest.param(
            [endpoint("10.180.1.2", "there", **TERMINATING)], "10.180.1.2:80", "DROP", id="a remote one terminates"
        ),
        pytest.param(
            [endpoint("10.180.0.1", HERE, ready=False, serving=False, terminating=True)],
            "REJECT",
            "REJECT",
            id="none serves",
        ),
    ],
)
def test_terminating_endpoints_with_local_policy(endpoints: list[Json], cluster: str, external: str) -> None:
    fake = balanced(*endpoints, externalTrafficPolicy="Local")
    assert_flows(fake, [("pod", POD, IP, 80, cluster), ("client", CLIENT, BALANCER, 80, external)])


# internal policy, external policy -> what a pod gets at the cluster IP, a client and the node itself at the NodePort
@pytest.mark.parametrize(
    ("internal", "external", "pod", "client", "node"),
    [
        ("Cluster", "Cluster", "L, R", "L, R masq", "L, R masq"),
        ("Cluster", "Local", "L, R", "L", "L, R masq"),
        ("Local", "Cluster", "L", "L, R masq", "L, R masq"),
        ("Local", "Local", "L", "L", "L, R masq"),
    ],
)
def test_both_policies(internal: str, external: str, pod: str, client: str, node: str) -> None:
    fake = balanced(LOCAL, REMOTE, internalTrafficPolicy=internal, externalTrafficPolicy=external)

    def spelled(text: str) -> str:
        return text.replace("L", "10.180.0.1:80").replace("R", "10.180.1.2:80")

    assert_flows(
        fake,
        [
            ("pod", POD, IP, 80, spelled(pod)),
            ("client", CLIENT, NODE_IP, NODE_PORT, spelled(client)),
            ("node", NODE_IP, NODE_IP, NODE_PORT, spelled(node)),
        ],
        user={"node": spelled(client).removesuffix(" masq")},
    )


def test_cluster_ips_that_nobody_has() -> None:
    ctx = replace(CONTEXT, service_cidrs=("172.30.0.0/16",))
    fake = world_of(service("svc", IP), endpoint_slice("svc", [LOCAL]), ctx=ctx)
    rows: list[Row] = [
        ("served", POD, IP, 80, "10.180.0.1:80"),
        ("another port", POD, IP, 81, "passes"),
        ("nobody's", POD, "172.30.9.9", 80, "passes"),
        ("nobody's, from the node", NODE_IP, "172.30.9.9", 80, "passes"),
        ("another range", POD, "172.31.0.41", 80, "passes"),
    ]
    assert_flows(fake, rows, nft={"another port": "REJECT", "nobody's": "DROP", "nobody's, from the node": "DROP"})


def test_many_services_do_not_touch_each_other() -> None:
    objects: list[Json] = []
    for number in range(40):
        objects.append(service(f"s{number}", f"172.30.1.{number}"))
        if number % 4:
            objects.append(endpoint_slice(f"s{number}", [f"10.180.3.{number}"]))
    fake = world_of(*objects)
    assert_flows(
        fake,
        [
            ("", POD, f"172.30.1.{number}", 80, f"10.180.3.{number}:80" if number % 4 else "REJECT")
            for number in range(40)
        ],
    )
