"""Who may reach a pod and whom it may reach, as `policy explain` has it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Direction, Name
from policy.plan import parse
from policy.plan.explain import Allowed, Explained, Side, explain
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.fakes.policy_kernel import Flow, allowed
from tests.unit.policy.world import PODS, SPACES, planned

P = Name("a", "p")
MANY = [pod(f"w{number}", f"10.1.0.{number}", labels={"app": "w"}) for number in range(9)]


def explained(name: str, policies: list[Json], pods: list[Json] = PODS, namespace: str = "a") -> Explained:
    known = [parse.pod(one) for one in pods]
    wanted = next(one for one in known if one.name == (namespace, name))
    return explain(wanted, [parse.policy(one)[0] for one in policies], known, SPACES)


def sides(found: Explained) -> dict[Direction, Side]:
    return {one.direction: one for one in found.sides}


def test_without_a_policy_both_directions_are_open() -> None:
    found = explained("a1", [policy(namespace="b"), policy("q", select={"app": "a2"})])
    assert [side.isolated_by for side in found.sides] == [(), ()] and not found.exempt


def test_rules_are_peers_in_words_with_the_pods_that_they_are_now() -> None:
    rules = [
        {
            "from": [apps("a2"), namespaces(team="blue"), block("192.0.2.0/24", "192.0.2.9/32")],
            "ports": [{"port": "web"}],
        },
        {"ports": [{"port": 53, "protocol": "UDP"}]},
    ]
    side = sides(explained("a1", [policy(select={"app": "a1"}, ingress=rules)]))[Direction.INGRESS]
    web = "the port named web/TCP (web is 80)"
    assert side.isolated_by == (P,)
    assert side.allowed == (
        Allowed(P, "ingress[0]", "pods app=a2 of namespace a", web, (Name("a", "a2"),), 1),
        Allowed(P, "ingress[0]", "every pod of namespaces team=blue", web, (Name("b", "b1"),), 1),
        Allowed(P, "ingress[0]", "192.0.2.0/24 except 192.0.2.9/32", web),
        Allowed(P, "ingress[1]", "anybody", "53/UDP"),
    )


def test_many_pods_are_counted_and_some_named() -> None:
    out = policy(policyTypes=["Egress"], egress=[{"to": [apps("w")]}])
    (one,) = sides(explained("a1", [out], PODS + MANY))[Direction.EGRESS].allowed
    assert one.count == 9 and [name.name for name in one.pods] == ["w0", "w1", "w2", "w3", "w4"]


def test_a_policy_without_rules_lets_nobody_in_and_pods_of_the_host_network_are_exempt() -> None:
    side = sides(explained("a1", [policy()]))[Direction.INGRESS]
    assert side.isolated_by == (P,) and side.allowed == ()
    found = explained("h", [policy()], [pod("h", "192.0.2.1", hostNetwork=True)])
    assert "network of its node" in found.exempt and [side.isolated_by for side in found.sides] == [(), ()]


def test_a_policy_of_many_thousand_rules_is_shown_in_part() -> None:
    rules = [{"from": [apps(f"x{n}") for n in range(200)]} for n in range(300)]
    side = sides(explained("a1", [policy(ingress=rules)]))[Direction.INGRESS]
    assert side.shortened and len(side.allowed) == 200 * 50


_RULE = st.fixed_dictionaries(
    {"from": st.lists(st.sampled_from([apps("a2"), apps("b1"), namespaces(team="blue"), namespaces()]), max_size=2)}
)


@settings(max_examples=50, deadline=None)
@given(st.lists(_RULE, max_size=3))
def test_it_names_the_pods_that_the_rules_let_in_and_no_others(rules: list[Json]) -> None:
    obj = policy(select={"app": "a1"}, ingress=rules)
    side = sides(explained("a1", [obj]))[Direction.INGRESS]
    program = planned(PODS, [obj], Family.IPV4)
    named = {name for one in side.allowed for name in one.pods}
    anybody = any(one.peer == "anybody" for one in side.allowed)
    for one in map(parse.pod, PODS[1:]):
        passes = allowed(program, Flow(str(one.addresses[0]), "10.0.0.1"))
        assert passes is (anybody or one.name in named), one.name
