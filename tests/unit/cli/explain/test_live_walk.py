"""What `trace --live` makes of the reports of two kernels, as nft prints them."""

from __future__ import annotations

import pytest

from cli.explain.facts import Facts
from cli.explain.live import matching
from cli.explain.live_walk import LiveWalk
from cli.explain.places import Target
from controlplane.machine.model import Listener
from tests.builders.pods import pod_json
from tests.builders.services import node, service

CLIENT, SERVICE, POD = "10.244.0.9", "10.96.0.7", "10.244.1.3"
FACTS = Facts.of(
    [service("web", SERVICE, clusterIPs=[SERVICE])],
    [],
    [pod_json("web-0", meta={"namespace": "ns"}, status={"podIP": POD, "phase": "Running"}, nodeName="node2")],
    [node("node1", address="10.89.3.11"), node("node2", address="10.89.3.12")],
    [],
)
OURS = "inet nodewright-trace-77"


def packet(
    chain: str, to: str = POD, *, number: int = 28065, id: str = "a1", port: int = 8080, source: str = CLIENT
) -> str:
    return (
        f'trace id {id} {chain} packet: iif "nw0" ip saddr {source} ip daddr {to} ip dscp cs0 ip ecn not-ect ip ttl 64'
        f" ip id {number} ip length 60 tcp sport 40058 tcp dport {port} tcp flags == syn tcp window 64240"
    )


def said(chain: str, text: str = "policy accept", *, id: str = "a1") -> str:
    return f"trace id {id} {chain} {text}"


FIRST = [
    ("node1", packet(f"{OURS} prerouting", SERVICE, port=80)),
    ("node1", packet("ip nat PREROUTING", SERVICE, port=80)),
    ("node1", said("ip nat KUBE-SEP-X", f"rule counter packets 3 bytes 180 dnat to {POD}:8080 (verdict accept)")),
    ("node1", packet("ip filter FORWARD")),
    ("node1", said("ip filter FORWARD")),
    ("node1", packet(f"{OURS} postrouting")),
]
SECOND = [
    ("node2", packet(f"{OURS} prerouting", id="b2")),
    ("node2", packet("ip filter FORWARD", id="b2")),
]
LEFT = [("node2", packet(f"{OURS} postrouting", id="b2"))]
BYSTANDERS = [
    ("node1", packet("ip nat PREROUTING", SERVICE, port=80, number=5, id="c3", source="10.244.0.77")),
    ("node2", packet("ip filter FORWARD", number=6, id="d4", source="10.244.1.1")),
    ("node2", said("ip filter FORWARD", "policy drop", id="d4")),
    ("node2", "nonsense"),
]
DROP = said("ip filter FORWARD", f"rule ip daddr {POD} counter packets 0 bytes 0 drop (verdict drop)", id="b2")


def walked(reports: list[tuple[str, str]]) -> LiveWalk:
    walk = LiveWalk(CLIENT, SERVICE, 80, "nodewright-trace-", FACTS)
    for where, line in reports:
        walk.feed(where, line)
    return walk


@pytest.mark.parametrize(
    ("reports", "word", "why", "settled"),
    [
        (FIRST + SECOND + LEFT, "ARRIVES", f"at {POD}:8080 (pod ns/web-0) on node2", True),
        (SECOND + LEFT + FIRST, "ARRIVES", "on node2", True),
        (BYSTANDERS + FIRST + SECOND + LEFT, "ARRIVES", "on node2", True),
        (FIRST + SECOND + [("node2", DROP)], "DROPPED on node2", "by ip filter FORWARD: rule ip daddr", True),
        ([*SECOND, ("node2", DROP), *FIRST], "DROPPED on node2", "by ip filter FORWARD: rule ip daddr", True),
        (FIRST + SECOND + [("node2", said("ip filter FORWARD", "policy drop", id="b2"))], "DROPPED on node2", "", True),
        ([*FIRST[:4], ("node1", said("ip filter FORWARD", "policy drop"))], "DROPPED on node1", "policy drop", True),
        (FIRST, "LOST between node1 and node2", "node2 never saw it", False),
        (FIRST + SECOND[:1], "LOST on node2", "no nftables rule of node2 dropped it", False),
        (FIRST[:1], "LOST on node1", "its route ends there", False),
        (BYSTANDERS, "NOT SEEN", "no such packet", False),
        ([], "NOT SEEN", "no such packet", False),
    ],
    ids=[
        "both nodes",
        "the second node's report comes first",
        "other packets",
        "dropped by a rule on the second node",
        "dropped there, reported first",
        "dropped by a policy on the second node",
        "dropped on the first node",
        "lost on the wire",
        "lost by the second node's route",
        "lost by the first node's route",
        "only others' packets",
        "nothing",
    ],
)
def test_how_a_packet_ends(reports: list[tuple[str, str]], word: str, why: str, settled: bool) -> None:
    walk = walked(reports)
    end = walk.end(("node1", "node2"), lambda address: None)
    assert end.word == word and why in end.why[0]
    assert end.arrived is (word == "ARRIVES")
    assert walk.settled() is settled


def test_its_hops_are_told_node_after_node_without_our_own_chains() -> None:
    lines = walked(BYSTANDERS + SECOND + FIRST).lines()
    assert [line.partition(":")[0] for line in lines] == ["node1"] * 4 + ["node2"]
    assert f"node1: ip nat KUBE-SEP-X: rule dnat to {POD}:8080 (verdict accept)" in "\n".join(lines).replace(
        " (pod ns/web-0)", ""
    )
    assert not any("nodewright-trace" in line or "10.244.0.77" in line for line in lines)


def test_nobody_listens_at_its_end() -> None:
    walk = walked(FIRST + SECOND + LEFT)
    end = walk.end(("node1", "node2"), lambda address: (Listener("tcp", "0.0.0.0", 9090),))
    assert end.word == "REFUSED" and end.why == ("in pod ns/web-0 nobody listens on 8080/tcp, only on 9090/tcp",)
    assert walk.end(("node1",), lambda address: None).word == "ARRIVES", "it was seen where it lives"


def test_a_node_that_is_elsewhere_cannot_report() -> None:
    end = walked(FIRST).end(("node1",), lambda address: None)
    assert end.word == "LEFT node1" and "which is not on this machine" in end.why[0] and not end.arrived


def test_a_number_that_the_kernel_uses_again_is_another_packet() -> None:
    again = [("node2", packet("ip filter FORWARD", number=99, id="b2")), ("node2", DROP)]
    assert walked(FIRST + SECOND + LEFT + again).end(("node1", "node2"), lambda address: None).word == "ARRIVES"


def test_names_of_hosts_are_not_looked_up() -> None:
    """A slice of type FQDN: nft would ask the DNS for each."""
    service = {"metadata": {"namespace": "ns", "name": "web", "uid": "s"}, "spec": {"clusterIP": "10.96.0.7"}}
    labels = {"kubernetes.io/service-name": "web"}
    part = {
        "metadata": {"namespace": "ns", "name": "web-1", "uid": "p", "labels": labels},
        "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["example.test"]}, {"addresses": ["10.0.1.2"]}],
    }
    facts = Facts.of([service], [part], [], [], [])
    to = Target("10.96.0.7", 80, "tcp", service)
    assert {one.destination for one in matching("", to, [], facts)} == {"10.96.0.7", "10.0.1.2"}
