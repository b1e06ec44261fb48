"""ClusterNetworkPolicies by mistake too many or too large, and ways around them."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from nodelib.addresses import hardware_address
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Name
from policy.plan import parse
from policy.plan.difference import whole
from policy.plan.entries import MOST, MOST_JUMPS
from policy.plan.program import Planner
from tests.builders.cluster_policies import ADMIN, BASELINE, cluster_policy, egress, ingress, named, nodes, pods, port
from tests.builders.policies import pod, policy
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed, allowed_to_node
from tests.unit.policy.test_cluster_program import NODE1, OUTSIDE, TO_A, filled, planned
from tests.unit.policy.world import PODS, A, B


def many(count: int, *, action: str = "Deny", tier: str = ADMIN) -> list[Json]:
    """Policies of 25 rules with 25 selectors and 25 named ports each: as large as the API takes them."""
    peers = [pods(f"x{one}") for one in range(25)]
    rules = [ingress(action, *peers, protocols=[named(f"n{one}"), port(80), port(90 + one)]) for one in range(25)]
    return [cluster_policy(f"p{one:03}", tier, one % 1000, ingress=rules) for one in range(count)]


def test_what_all_cluster_policies_cost_is_bounded() -> None:
    first = cluster_policy("a-first", priority=0, ingress=[ingress("Accept", pods("a2"), protocols=[port(443)])])
    last = cluster_policy("last", BASELINE, priority=0, ingress=[ingress("Accept", pods("a2"))])
    own = policy(select={"app": "b1"}, namespace="b", ingress=[{"from": [{"podSelector": {}}]}])
    program = planned([own], [first, *many(100), last])
    size = sum(map(len, program.chains.values())) + sum(map(len, program.elements.values()))
    assert size < MOST
    assert {one.namespace for one in program.left_out} == {""}
    assert Name("", "a-first") not in program.left_out, "the first have their room first"
    assert Name("", "p099") in program.left_out
    asyncio.run(FakePolicyTable().commit(whole(program)))
    assert allowed(program, Flow(B, A, 6, 443))
    assert not allowed(program, Flow(B, A)), "what would deny something denies everything"
    assert set(program.denials) <= set(program.chains)


def test_baseline_policies_take_no_room_from_admin_policies() -> None:
    (admin,) = many(1)
    admin["metadata"]["name"], admin["spec"]["priority"] = "z", 1000
    left_out = planned([], [admin, *many(100, tier=BASELINE)]).left_out
    assert left_out and Name("", "z") not in left_out


def test_cluster_policies_that_only_accept_accept_nothing_without_room() -> None:
    program = planned([], many(100, action="Accept"))
    assert program.left_out
    assert allowed(program, Flow(B, A))


def test_policies_that_select_each_pod_in_another_way_are_bounded() -> None:
    """Each pod has a tier of its own that leads to thousands: pods times policies."""
    there = [pod(f"x{one}", f"10.0.1.{one}", labels={f"not-{one}": ""}) for one in range(200)]
    cluster = [cluster_policy(f"p{one}", ingress=[ingress("Deny", pods("nobody"))]) for one in range(300)]
    for number, one in enumerate(cluster[:200]):
        absent = {"matchExpressions": [{"key": f"not-{number}", "operator": "DoesNotExist"}]}
        one["spec"]["subject"] = {"pods": {"namespaceSelector": {}, "podSelector": absent}}
    program = planned([], cluster, [*PODS, *there])
    asyncio.run(FakePolicyTable().commit(whole(program)))
    assert sum(map(len, program.chains.values())) < 2 * MOST_JUMPS
    asked = sorted(range(0, 200, 10), key=str)
    closed = [one for one in asked if not allowed(program, Flow(B, f"10.0.1.{one}"))]
    assert closed and program.left_out, "a pod whose tier has no room is reached by nobody"
    assert closed == asked[-len(closed) :], "always those whose names come last"
    assert any(text.startswith("Admin ingress too many") for text in program.denials.values())


def test_two_pods_with_one_address_do_not_stop_the_rules_of_the_node() -> None:
    """The kernel refuses the whole transaction when one address leads to two chains."""
    cluster = [
        cluster_policy("one", subject=pods("a1"), ingress=[ingress("Deny")], egress=[egress("Deny", nodes())]),
        cluster_policy("two", subject=pods("x"), ingress=[ingress("Pass")], egress=[egress("Pass", nodes())]),
    ]
    there = [*PODS, pod("x", A, namespace="b")]
    for policies in ([], [policy(select=TO_A)], [policy(select={"app": "x"}, namespace="b")]):
        asyncio.run(FakePolicyTable().commit(whole(planned(policies, cluster, there))))


def test_of_two_pods_with_one_address_the_isolated_one_counts() -> None:
    cluster = [cluster_policy(subject=pods("x"), ingress=[ingress("Deny", pods("nobody"))])]
    program = planned([policy(select=TO_A)], cluster, [*PODS, pod("x", A, namespace="b")])
    assert not allowed(program, Flow(OUTSIDE, A))


def test_a_cluster_policy_alone_closes_the_ways_around_it() -> None:
    """What policies judge by their addresses must not be reached by, or sent from, others."""
    cluster = [cluster_policy(subject=pods("a1"), egress=[egress("Deny", nodes())])]
    index = filled([], cluster)
    index.hold(parse.pod(PODS[0]).name, "", (ip_address(A),))
    program = Planner(Family.IPV4, "node1", report=False).plan(index, index.take_changed())[0]
    own = hardware_address(ip_address(A))
    assert not allowed(program, Flow(B, "224.0.0.1")), "a group's address"
    assert not allowed(program, Flow(B, OUTSIDE, sender=own))
    assert not allowed_to_node(program, Flow(B, NODE1, sender=own)), "nor to its own node"
    assert allowed(planned([], [cluster_policy(subject=pods("none"), ingress=[ingress("Deny")])]), Flow(B, "224.0.0.1"))
