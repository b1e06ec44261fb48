"""What is read of ClusterNetworkPolicies and Nodes, and how what cannot be understood is closed or skipped."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.json_values import Json
from policy.cluster_model import Action, Tier
from policy.model import (
    Direction,
    DomainNames,
    NamedPort,
    Networks,
    NodeSelection,
    PolicyRule,
    PortRange,
    Selection,
    Selector,
)
from policy.plan import parse_cluster
from policy.plan.parse_cluster import MOST
from tests.builders.cluster_policies import (
    ADMIN,
    BASELINE,
    cluster_policy,
    domains,
    egress,
    everybody,
    ingress,
    named,
    networks,
    node,
    nodes,
    pods,
    port,
    spaces,
)

IN, OUT = Direction.INGRESS, Direction.EGRESS
NOTHING, EVERYTHING = PolicyRule(peers=()), PolicyRule()


@pytest.mark.parametrize(("tier", "priority"), [(ADMIN, 0), (BASELINE, 1000)])
def test_a_policy(tier: str, priority: int) -> None:
    rule = ingress("Pass", spaces(team="red"), pods("x", team="blue"), protocols=[port(80)], name="first")
    found, problems = parse_cluster.cluster_policy(cluster_policy("p", tier, priority, ingress=[rule]))
    assert found is not None and not problems
    assert (found.tier, found.priority, found.subject) == (
        Tier(tier),
        priority,
        Selection(Selector(), namespaces=Selector()),
    )
    (one,) = found.rules[IN]
    assert (one.action, one.name, one.match.ports) == (Action.PASS, "first", (PortRange("TCP", 80, 80),))
    assert one.match.peers is not None and len(one.match.peers) == 2
    assert OUT not in found.rules, "without a rule for it a policy does not affect a direction"


@pytest.mark.parametrize(
    ("protocol", "ports", "names"),
    [
        (port(80), (PortRange("TCP", 80, 80),), ()),
        (port(53, protocol="udp"), (PortRange("UDP", 53, 53),), ()),
        (port(1, 65535, "sctp"), (PortRange("SCTP", 1, 65535),), ()),
        (named("web"), (), tuple(NamedPort(one, "web") for one in ("TCP", "UDP", "SCTP"))),
    ],
)
def test_protocols(protocol: Json, ports: Any, names: Any) -> None:
    found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=[ingress("Deny", protocols=[protocol])]))
    assert found is not None and not problems
    assert (found.rules[IN][0].match.ports, found.rules[IN][0].match.named) == (ports, names)


def test_nodes_and_networks_are_peers_of_egress() -> None:
    rule = egress("Accept", nodes(zone="a"), networks("10.0.0.7/8", "fd00::/8", "10.0.0.0/8"))
    found, problems = parse_cluster.cluster_policy(cluster_policy(egress=[rule]))
    assert found is not None and not problems
    peers = found.rules[OUT][0].match.peers
    assert peers is not None
    selection, block = peers
    assert isinstance(selection, NodeSelection) and selection.nodes.fits({"zone": "a"})
    assert block == Networks((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))


_EXPRESSION: Json = {"key": "a", "operator": "In", "values": ["b"]}
UNCLEAR_PEERS = [
    pytest.param(peer, id=name)
    for name, peer in {
        "none": {},
        "of a newer version": {"services": {}},
        "two": {**spaces(a="b"), **nodes()},
        "nothing in it": {"namespaces": None},
        "no object": {"namespaces": "all"},
        "a list": {"namespaces": []},
        "no selector of pods": {"pods": {"namespaceSelector": {}}},
        "an unknown operator": {"namespaces": {"matchExpressions": [{**_EXPRESSION, "operator": "Gt"}]}},
        "In without values": {"namespaces": {"matchExpressions": [{**_EXPRESSION, "values": []}]}},
        "NotIn without values": {
            "namespaces": {"matchExpressions": [{**_EXPRESSION, "operator": "NotIn", "values": []}]}
        },
        "Exists with values": {"namespaces": {"matchExpressions": [{**_EXPRESSION, "operator": "Exists"}]}},
        "no key": {"namespaces": {"matchExpressions": [{**_EXPRESSION, "key": ""}]}},
        "a key that no label has": {"namespaces": {"matchLabels": {"a b": "c"}}},
        "a value that no label has": {"namespaces": {"matchLabels": {"a": "-c"}}},
        "no domain names": domains(),
        "a domain name that is none": domains("example.com", "www.*.com"),
        "a name of one label": domains("com"),
        "a name with a line behind it": domains("example.com\n"),
        "a name in other letters": domains("ex\N{LATIN SMALL LETTER A WITH DIAERESIS}mple.com"),
        "a name that is too long": domains(".".join(["a" * 60] * 5)),
        "more names than allowed": domains(*[f"{one}.example.com" for one in range(MOST + 1)]),
        "no network": networks("10.0.0.0/33"),
        "a zone": networks("fe80::1%\n/64"),
        "no networks": networks(),
        "more networks than allowed": networks(*[f"10.{one}.0.0/16" for one in range(MOST + 1)]),
    }.items()
]


@pytest.mark.parametrize("peer", UNCLEAR_PEERS)
@pytest.mark.parametrize(
    ("action", "closed"),
    [("Accept", (Action.ACCEPT, NOTHING)), ("Deny", (Action.DENY, EVERYTHING)), ("Pass", (Action.DENY, EVERYTHING))],
)
def test_a_rule_with_a_peer_that_is_not_understood_is_closed(peer: Json, action: str, closed: Any) -> None:
    """As v0.2.0 says: an Accept rule matches no traffic, a Deny or Pass rule denies all of it."""
    good = egress("Accept", spaces(a="b"))
    obj = cluster_policy(egress=[egress(action, everybody(), peer), good])
    found, problems = parse_cluster.cluster_policy(obj)
    assert found is not None
    first, second = found.rules[OUT]
    assert (first.action, first.match) == closed
    assert second.match.peers, "the other rules hold"
    assert len(problems) == 1 and problems[0].obj == "ClusterNetworkPolicy c"
    assert "spec.egress[0]" in problems[0].message and "to[1]" in problems[0].message


@pytest.mark.parametrize(
    "change",
    [
        {"to": []},
        {"to": None},
        {"to": "all"},
        {"to": [everybody()] * (MOST + 1)},
        {"protocols": []},
        {"protocols": [port(80)] * (MOST + 1)},
        {"protocols": "tcp"},
        {"protocols": [{}]},
        {"protocols": [{"tcp": {}}]},
        {"protocols": [{"icmp": {}}]},
        {"protocols": [{**port(80), **port(80, protocol="udp")}]},
        {"protocols": [port(0)]},
        {"protocols": [port(65536)]},
        {"protocols": [{"tcp": {"destinationPort": {"number": True}}}]},
        {"protocols": [{"tcp": {"destinationPort": {"number": 80, "range": {"start": 1, "end": 2}}}}]},
        {"protocols": [port(80, 80)]},
        {"protocols": [port(80, 79)]},
        {"protocols": [named("")]},
        {"to": [networks("10.0.0.0/8")], "protocols": [named("web")]},
        {"to": [nodes()], "protocols": [port(80), named("web")]},
        {"to": [domains("example.com")], "protocols": [named("web")]},
    ],
    ids=str,
)
def test_peers_and_protocols_that_are_not_understood_close_the_rule(change: Json) -> None:
    for action, match in (("Accept", NOTHING), ("Deny", EVERYTHING), ("Pass", EVERYTHING)):
        found, problems = parse_cluster.cluster_policy(cluster_policy(egress=[{**egress(action), **change}]))
        assert found is not None and found.rules[OUT][0].match == match and len(problems) == 1


def test_domain_names_are_read_in_lower_case_and_without_a_dot_at_the_end() -> None:
    rule = egress("Accept", domains("*.Example.COM", "example.com.", "example.com", "_sip.a-b.example"))
    found, problems = parse_cluster.cluster_policy(cluster_policy(egress=[rule]))
    assert found is not None and not problems
    (peer,) = found.rules[OUT][0].match.peers or ()
    assert peer == DomainNames(("*.example.com", "example.com", "_sip.a-b.example"))


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("www.example.com", True),
        ("a.b.example.com", True),
        ("example.com", False),
        ("myexample.com", False),
        ("example.org", True),
        ("www.example.org", False),
        ("example.com.evil.net", False),
    ],
)
def test_a_star_stands_for_one_label_or_more(name: str, fits: bool) -> None:
    assert DomainNames(("*.example.com", "example.org")).have(name) is fits


def test_domain_names_that_nothing_can_be_learnt_of_or_that_deny_close_the_rule() -> None:
    rules = [egress(action, domains("example.com")) for action in ("Accept", "Deny", "Pass")]
    found, problems = parse_cluster.cluster_policy(cluster_policy(egress=rules))
    assert found is not None and [one.action for one in found.rules[OUT]] == [Action.ACCEPT, Action.DENY, Action.DENY]
    assert [one.match for one in found.rules[OUT]][1:] == [EVERYTHING, EVERYTHING]
    assert len(problems) == 2 and all("the action Accept only" in one.message for one in problems)
    found, problems = parse_cluster.cluster_policy(cluster_policy(egress=rules[:1]), no_names="no kernel")
    assert found is not None and found.rules[OUT][0].match == NOTHING
    assert "domainNames: no kernel, so the rule accepts nothing" in problems[0].message


def test_domain_names_are_no_peers_of_ingress() -> None:
    found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=[ingress("Accept", domains("example.com"))]))
    assert found is not None and found.rules[IN][0].match == NOTHING and len(problems) == 1


def test_an_action_that_is_not_known_denies() -> None:
    found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=[ingress("Log", spaces(a="b"))]))
    assert found is not None and found.rules[IN][0].action is Action.DENY and len(problems) == 1


def test_networks_and_nodes_are_no_peers_of_ingress() -> None:
    for peer in (networks("10.0.0.0/8"), nodes()):
        found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=[ingress("Accept", peer)]))
        assert found is not None and found.rules[IN][0].match == NOTHING and problems


def test_rules_behind_the_most_that_are_allowed_are_closed() -> None:
    rules = [ingress("Accept")] * MOST + [ingress("Accept"), ingress("Pass")]
    found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=rules))
    assert found is not None and len(problems) == 2
    assert [one.match for one in found.rules[IN][MOST - 1 :]] == [
        PolicyRule((Selection(Selector(), namespaces=Selector()),)),
        NOTHING,
        EVERYTHING,
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"tier": "NetworkPolicy"},
        {"tier": None},
        {"tier": ["Admin"]},
        {"priority": -1},
        {"priority": 1001},
        {"priority": True},
        {"priority": "1"},
        {"priority": None},
        {"subject": {}},
        {"subject": {"nodes": {}}},
        {"subject": {**spaces(), **pods()}},
        {"subject": {"pods": {}}},
        {"subject": {"namespaces": {"matchExpressions": [{"key": "a", "operator": "?"}]}}},
    ],
    ids=str,
)
def test_a_policy_whose_tier_priority_or_subject_is_not_understood_is_skipped(change: Json) -> None:
    obj = cluster_policy(ingress=[ingress("Deny")])
    obj["spec"] |= change
    found, problems = parse_cluster.cluster_policy(obj)
    assert found is None and len(problems) == 1
    assert f"spec.{next(iter(change))}" in problems[0].message and "skipped" in problems[0].message


@given(st.text(max_size=400))
def test_a_rule_may_have_any_name(name: str) -> None:
    found, problems = parse_cluster.cluster_policy(cluster_policy(ingress=[ingress("Deny", name=name)]))
    assert found is not None and found.rules[IN][0].name == name[:100] and not problems


def test_a_node() -> None:
    found = parse_cluster.node(node("n", "192.0.2.1", "2001:db8::1", zone="a"))
    assert (found.labels, found.addresses) == ({"zone": "a"}, (ip_address("192.0.2.1"), ip_address("2001:db8::1")))


_KEYS = [
    *("tier", "priority", "subject", "namespaces", "pods", "podSelector", "namespaceSelector", "ingress", "egress"),
    *("from", "to", "action", "protocols", "tcp", "destinationPort", "number", "range", "start", "nodes", "networks"),
    *("matchLabels", "matchExpressions", "key", "operator", "values", "addresses", "address", "destinationNamedPort"),
]
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["Admin", "Deny", "In"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _ANYTHING), _ANYTHING, _ANYTHING)
def test_reading_never_raises(obj: Json, subject: Any, rules: Any) -> None:
    parse_cluster.cluster_policy(obj)
    parse_cluster.node(obj)
    whole = cluster_policy(ingress=[rules], egress=rules)
    whole["spec"]["subject"] = subject
    parse_cluster.cluster_policy(whole)
