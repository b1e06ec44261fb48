"""What `service` and `why` say of a Service of type LoadBalancer in a cluster that gives addresses itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from cli.explain.balancer import announced, announcers
from cli.explain.facts import Facts
from cli.explain.listening import unknown
from cli.explain.places import Sender, Target
from cli.explain.service_words import problems
from cli.explain.walk import Machine, first_node, paths
from cli.why import services
from cli.why.model import Facts as WhyFacts
from loadbalancer.model import Address, Row, Table
from loadbalancer.plan import table
from nodelib.addresses import parse_address
from nodelib.firewall.fib import Route
from nodelib.json_values import Json
from tests.builders.balanced import balanced
from tests.builders.services import node

POOL = "192.0.2.1-192.0.2.2"


def leases(rows: Mapping[str, tuple[str, tuple[str, ...]]], pool: str = POOL) -> list[Json]:
    """The table: node and names of Services by address."""
    made: dict[Address, Row] = {
        parse_address(one): Row(tuple(f"uid-a-{name}" for name in names), where) for one, (where, names) in rows.items()
    }
    notes = {table.ANNOTATION: table.to_text(Table(made)), table.POOL: pool}
    member: Json = {"metadata": {"name": "node-node1"}, "spec": {}}
    return [member, {"metadata": {"name": table.LEASE, "annotations": notes}, "spec": {}}]


@dataclass(frozen=True)
class Case:
    """`says`: parts of the problems about addresses; `announced`: the phrase beside the addresses."""

    service: Json
    leases: list[Json]
    says: tuple[str, ...] = ()
    does: str = ""
    announced: str = ""
    others: tuple[Json, ...] = ()


FULL = {"192.0.2.1": ("node1", ("x",)), "192.0.2.2": ("node2", ("y",))}
CASES = {
    "announced": Case(balanced("x", given=("192.0.2.1",)), leases(FULL), announced="192.0.2.1 is announced by node1"),
    "full pool": Case(
        balanced("z"),
        leases(FULL),
        ("All 2 IPv4 addresses of the pool are taken",),
        "port-forward",
        others=(balanced("x"), balanced("y")),
    ),
    "outside of the pool": Case(balanced("z", ips="9.9.9.9"), leases({}), ("is not in the pool",)),
    "taken": Case(
        balanced("z", ips="192.0.2.1"),
        leases(FULL),
        ("it is the address of a/x",),
        others=(balanced("x"), balanced("y")),
    ),
    "another request than it has": Case(
        balanced("x", given=("192.0.2.1",), ips="192.0.2.2"),
        leases(FULL),
        ("It has 192.0.2.1 and not what it asks for: 192.0.2.2 is requested",),
        announced="192.0.2.1 is announced by node1",
        others=(balanced("y"),),
    ),
    "not written yet": Case(balanced("x"), leases({}), ("the load balancer daemons have not written it",), "status"),
    "policy Local without endpoints": Case(
        balanced("x", given=("192.0.2.1",), externalTrafficPolicy="Local"),
        leases({"192.0.2.1": ("", ("x",))}),
        ("No node announces 192.0.2.1: with externalTrafficPolicy Local",),
        "externalTrafficPolicy",
        "192.0.2.1 is announced by no node",
    ),
    "no daemon": Case(
        balanced("x", given=("192.0.2.1",)),
        leases({"192.0.2.1": ("", ("x",))}),
        ("no load balancer daemon has been heard of",),
        "loadbalancer.log",
        "192.0.2.1 is announced by no node",
    ),
    "an address of another controller": Case(balanced("x", given=("203.0.113.9",)), leases({})),
    "another class": Case(
        balanced("x", loadBalancerClass="example.com/lb"), leases({}), ("the controller of its loadBalancerClass",)
    ),
    "none of our daemons": Case(balanced("x"), [], ("nothing in this cluster gives addresses",), "--no-load-balancer"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_words(case: Case) -> None:
    every = [case.service, *case.others]
    facts = Facts.of(every, [], [], [node("node1", address="10.89.1.11")], leases=case.leases)
    found = [
        one
        for one in problems(case.service, facts, lambda _: None, "cluster.local")
        if one.reason in ("NoLoadBalancer", "NotAnnounced")
    ]
    assert len(found) == len(case.says), found
    for problem, says in zip(found, case.says, strict=True):
        assert says in problem.text
        assert case.does in problem.action
    assert announced(case.service, facts) == case.announced
    assert bool(announcers(case.service, facts)) is bool(case.announced)
    why = WhyFacts({"service": tuple(every), "lease": tuple(case.leases), "node": ()})
    shown = services.service(case.service, why, services.endpoint_facts(why), unknown)
    assert [one.error for one in shown.found.waits] == [one.text for one in found]
    assert case.announced in shown.found.phase
    assert shown.listed is bool(case.says)


def test_a_table_that_somebody_broke_ends_no_command() -> None:
    for pool in ("", "x", "9" * 1000):
        broken = leases({}, pool)
        broken[1]["metadata"]["annotations"][table.ANNOTATION] = "{"
        facts = Facts.of([balanced("x")], [], [], [], leases=broken)
        assert problems(balanced("x"), facts, lambda _: None, "cluster.local")


@pytest.mark.parametrize(("where", "first"), [("node2", "node2"), ("", "node1"), (None, "node1")])
def test_a_packet_from_outside_meets_the_node_that_announces_the_address(where: str | None, first: str) -> None:
    rows = {} if where is None else {"192.0.2.1": (where, ("x",))}
    nodes = [node(name, address=address) for name, address in (("node1", "192.0.2.11"), ("node2", "192.0.2.12"))]
    facts = Facts.of([balanced("x", given=("192.0.2.1",))], [], [], nodes, leases=leases(rows))
    sender, to = Sender("this machine", "192.0.2.254", "", False), Target("192.0.2.1", 80, "tcp")
    assert first_node(sender, to, facts) == first
    machine = Machine(("192.0.2.254",), (), "nw-lab", lambda _: Route("unicast", "nw-lab"))
    found = paths(sender, to, {}, facts, machine)
    assert ("no node announces" in found[0].why[0]) is (where == "")
