"""The tables that ClusterNetworkPolicies become, beside NetworkPolicies: who may reach whom, and what changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft import wire
from nodelib.nft.actions import Log
from policy.model import Resolvers
from policy.plan import cluster_layout, layout, parse, parse_cluster
from policy.plan.difference import difference, whole
from policy.plan.index import Index
from policy.plan.program import Planner, Program
from tests.builders.cluster_policies import (
    ADMIN,
    BASELINE,
    cluster_policy,
    domains,
    egress,
    ingress,
    named,
    networks,
    node,
    nodes,
    pods,
    port,
    spaces,
)
from tests.builders.policies import pod, policy
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed, allowed_to_node
from tests.unit.policy.world import PODS, SPACES, A, B, C, allows, fits, indexed, isolating, numbered

OUTSIDE, NODE1, NODE2 = "192.0.2.1", "198.51.100.1", "198.51.100.2"
NODES = [node("node1", NODE1, os="linux"), node("node2", NODE2, os="linux", zone="b")]


def filled(policies: list[Json], cluster: list[Json], there: list[Json] | None = None) -> Index:
    index = indexed(PODS if there is None else there, policies)
    for obj in NODES:
        index.set_node(obj["metadata"]["name"], parse_cluster.node(obj))
    for obj in cluster:
        found, _ = parse_cluster.cluster_policy(obj)
        index.set_cluster_policy(obj["metadata"]["name"], found)
    return index


def planned(policies: list[Json], cluster: list[Json], there: list[Json] | None = None) -> Program:
    index = filled(policies, cluster, there)
    return Planner(Family.IPV4, "node1", report=True).plan(index, index.take_changed())[0]


DENY = cluster_policy("deny", ADMIN, 50, ingress=[ingress("Deny")])
BASE = cluster_policy("base", BASELINE, 50, ingress=[ingress("Deny")])
TO_A: Json = {"app": "a1"}


@pytest.mark.parametrize(
    ("policies", "cluster", "flow", "passes"),
    [
        pytest.param([], [DENY], Flow(B, A), False, id="admin denies"),
        pytest.param([], [DENY], Flow(OUTSIDE, A), True, id="peers are pods: what comes from outside is not denied"),
        pytest.param([], [DENY], Flow(B, A, 17, 53), False, id="without protocols every one is meant"),
        pytest.param([], [DENY], Flow(B, A, 1, 0), False, id="ICMP, too"),
        pytest.param([policy(ingress=[{}])], [DENY], Flow(B, A), False, id="no NetworkPolicy allows what admin denies"),
        pytest.param(
            [policy(select=TO_A)], [cluster_policy(ingress=[ingress("Accept")])], Flow(B, A), True, id="admin accepts"
        ),
        pytest.param(
            [policy(select=TO_A)],
            [cluster_policy(ingress=[ingress("Accept", spaces(team="blue"))])],
            Flow(B, A),
            False,
            id="what admin does not decide is the NetworkPolicy's",
        ),
        pytest.param(
            [policy(select=TO_A)], [cluster_policy(ingress=[ingress("Pass")])], Flow(B, A), False, id="pass, isolated"
        ),
        pytest.param([], [cluster_policy(ingress=[ingress("Pass")]), DENY], Flow(B, A), True, id="pass skips the tier"),
        pytest.param(
            [],
            [cluster_policy("x", priority=50, ingress=[ingress("Pass")]), DENY],
            Flow(B, A),
            False,
            id="equal priorities are in the order of the names",
        ),
        pytest.param(
            [],
            [cluster_policy("b", priority=51, ingress=[ingress("Accept")]), DENY],
            Flow(B, A),
            False,
            id="a lower number comes first",
        ),
        pytest.param(
            [],
            [cluster_policy("z", priority=2, ingress=[ingress("Accept")]), DENY],
            Flow(B, A),
            True,
            id="by number, not by text",
        ),
        pytest.param(
            [],
            [
                cluster_policy(ingress=[ingress("Deny", pods("a2")), ingress("Pass", pods("a2")), ingress("Accept")]),
                BASE,
            ],
            Flow(B, A),
            False,
            id="rules in their order: deny, pass",
        ),
        pytest.param(
            [],
            [cluster_policy(ingress=[ingress("Pass", pods("a2")), ingress("Deny")]), BASE],
            Flow(B, A),
            False,
            id="what passes reaches the baseline",
        ),
        pytest.param([], [BASE], Flow(B, A), False, id="baseline denies"),
        pytest.param([policy(ingress=[{}])], [BASE], Flow(B, A), True, id="a NetworkPolicy comes before the baseline"),
        pytest.param(
            [policy(select={"app": "a2"})], [BASE], Flow(B, A), False, id="a NetworkPolicy for another pod does not"
        ),
        pytest.param(
            [policy(select=TO_A, policyTypes=["Egress"], egress=[{}])],
            [BASE],
            Flow(B, A),
            False,
            id="nor does one for the other direction",
        ),
        pytest.param(
            [],
            [cluster_policy(tier=BASELINE, ingress=[ingress("Accept", pods("a2"))]), BASE],
            Flow(B, A),
            True,
            id="baseline accepts before baseline denies",
        ),
        pytest.param(
            [],
            [cluster_policy(tier=BASELINE, ingress=[ingress("Pass")]), BASE],
            Flow(B, A),
            True,
            id="what passes the baseline is allowed",
        ),
        pytest.param(
            [], [cluster_policy(egress=[egress("Deny", networks("10.0.0.0/24"))])], Flow(A, B), False, id="a network"
        ),
        pytest.param(
            [],
            [cluster_policy(egress=[egress("Accept", networks("10.0.0.2/31", "10.0.0.0/8")), egress("Deny")])],
            Flow(A, B),
            True,
            id="overlapping networks",
        ),
        pytest.param(
            [], [cluster_policy(egress=[egress("Deny", networks("fd00::/8"))])], Flow(A, B), True, id="the other family"
        ),
        pytest.param([], [cluster_policy(egress=[egress("Deny", nodes())])], Flow(A, NODE2), False, id="a node"),
        pytest.param(
            [], [cluster_policy(egress=[egress("Deny", nodes(zone="c"))])], Flow(A, NODE2), True, id="no such node"
        ),
        pytest.param(
            [],
            [cluster_policy(ingress=[ingress("Deny", protocols=[port(80, 81), port(53, protocol="udp")])])],
            Flow(B, A, 6, 81),
            False,
            id="the end of a range",
        ),
        pytest.param(
            [],
            [cluster_policy(ingress=[ingress("Deny", protocols=[port(80, 81), port(53, protocol="udp")])])],
            Flow(B, A, 17, 80),
            True,
            id="another protocol",
        ),
        pytest.param(
            [],
            [cluster_policy(ingress=[ingress("Deny", protocols=[named("web")])])],
            Flow(B, A),
            False,
            id="named port",
        ),
        pytest.param(
            [],
            [cluster_policy(egress=[egress("Deny", protocols=[named("web")])])],
            Flow(A, C, 6, 80),
            True,
            id="the name of another port there",
        ),
        pytest.param(
            [], [cluster_policy(subject=pods("a2"), ingress=[ingress("Deny")])], Flow(B, A), True, id="another subject"
        ),
        pytest.param(
            [],
            [cluster_policy(subject=pods("a1", team="blue"), ingress=[ingress("Deny")])],
            Flow(B, A),
            True,
            id="a subject in other namespaces",
        ),
        pytest.param([policy(select=TO_A)], [], Flow(A, A), True, id="itself under a NetworkPolicy"),
        pytest.param([], [DENY], Flow(A, A), False, id="itself through a Service, when the tiers deny it"),
        pytest.param(
            [policy(select=TO_A)],
            [cluster_policy(ingress=[ingress("Pass")])],
            Flow(A, A),
            True,
            id="itself, when the tiers leave it to a NetworkPolicy",
        ),
        pytest.param(
            [policy(select=TO_A)],
            [cluster_policy(egress=[egress("Deny", nodes())])],
            Flow(A, A),
            True,
            id="itself, with a tier for the other direction",
        ),
        pytest.param(
            [policy(select=TO_A, policyTypes=["Egress"], egress=[{}])],
            [DENY],
            Flow(A, A),
            False,
            id="itself, denied in one direction, isolated in the other",
        ),
        pytest.param(
            [], [DENY], Flow(OUTSIDE, A, state="invalid"), False, id="no connection, so it might be a denied one"
        ),
        pytest.param(
            [],
            [cluster_policy(ingress=[ingress("Accept", pods("a2"))])],
            Flow(OUTSIDE, A, state="invalid"),
            True,
            id="no connection, nothing denied",
        ),
        pytest.param([], [DENY], Flow(B, C, state="untracked"), True, id="a pod of another node"),
    ],
)
def test_verdicts(policies: list[Json], cluster: list[Json], flow: Flow, passes: bool) -> None:
    there = [*PODS[:2], pod("b1", C, namespace="b", node="node2", ports={"web": 81})]
    assert allowed(planned(policies, cluster, there), flow) is passes


@pytest.mark.parametrize(
    ("policies", "cluster", "passes"),
    [
        pytest.param([], [], True, id="no policy"),
        pytest.param([policy(policyTypes=["Egress"])], [], True, id="NetworkPolicies never forbid the own node"),
        pytest.param([], [cluster_policy(egress=[egress("Deny")])], True, id="pods only"),
        pytest.param([], [cluster_policy(egress=[egress("Deny", nodes())])], False, id="nodes"),
        pytest.param([], [cluster_policy(egress=[egress("Deny", networks("0.0.0.0/0"))])], False, id="networks"),
        pytest.param([], [cluster_policy(ingress=[ingress("Deny")])], True, id="ingress"),
        pytest.param([], [cluster_policy(egress=[{"action": "Deny", "to": [{}]}])], False, id="a closed rule"),
        pytest.param(
            [],
            [cluster_policy(egress=[egress("Deny", nodes(), protocols=[port(22)])])],
            True,
            id="another port of the node",
        ),
        pytest.param(
            [policy(policyTypes=["Egress"])],
            [cluster_policy(tier=BASELINE, egress=[egress("Deny", nodes())])],
            True,
            id="a NetworkPolicy isolates, so the baseline is not asked",
        ),
        pytest.param([], [cluster_policy(tier=BASELINE, egress=[egress("Deny", nodes())])], False, id="baseline"),
    ],
)
def test_what_a_pod_sends_to_its_own_node(policies: list[Json], cluster: list[Json], passes: bool) -> None:
    program = planned(policies, cluster)
    assert allowed_to_node(program, Flow(A, NODE1, 6, 6443)) is passes
    assert (cluster_layout.TO_NODE in program.chains) is any(
        "node" in str(one["spec"]) or "networks" in str(one["spec"]) or "[{}]" in str(one["spec"]) for one in cluster
    ), "a cluster whose policies have no rule for nodes has no chain for packets to the node"


def test_no_cluster_policy_leaves_the_table_as_it_is() -> None:
    policies = [policy(select=TO_A)]
    assert planned(policies, []) == planned(
        policies, [cluster_policy(subject=pods("nobody"), ingress=[ingress("Deny")])]
    )


def test_the_chains_of_a_policy_are_shared_by_the_tiers_that_have_it() -> None:
    one = cluster_policy("one", ingress=[ingress("Deny", pods("x"))])
    two = cluster_policy(
        "two", priority=20, subject=pods("a1"), ingress=[ingress("Pass", pods("y")), ingress("Accept")]
    )
    program = planned([], [one, two])
    tiers = [rules for name, rules in program.chains.items() if name.startswith("tier-")]
    segments = [name for name in program.chains if name.startswith("cluster-")]
    assert len(tiers) == 2 and len(segments) == 2, "one policy's chain and the other's, whose Pass is in its tier"


def test_each_rule_that_denies_says_which_it_is() -> None:
    rules = [ingress("Accept", pods("x")), ingress("Deny", pods("a2"), pods("b1"), name='no "x"; 中')]
    program = planned([], [cluster_policy("c-0.x", ingress=rules)])
    (chain,) = [name for name in program.chains if name.startswith("deny-")]
    assert program.denials == {chain: "Admin ingress[1] of c-0.x no x "}
    logs, last = program.chains[chain]
    assert any(isinstance(one, Log) and one.prefix == chain for one in logs.statements)
    assert last.comment == program.denials[chain]


@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253),
    st.text(max_size=100),
)
def test_any_name_fits_into_the_kernel(name: str, rule: str) -> None:
    rules = [ingress("Deny", name=rule), ingress("Pass", name=rule), ingress("Accept", name=rule)]
    program = planned([], [cluster_policy(name, ingress=rules, egress=[egress("Deny", nodes(), name=rule)])])
    assert all(len(one) < 128 for one in (*program.chains, *program.sets))
    for rules_ in program.chains.values():
        for one in rules_:
            assert len(one.comment.encode()) < 128 and '"' not in one.comment
    asyncio.run(FakePolicyTable().commit(whole(program)))


def test_a_node_that_comes_or_goes_is_a_few_elements() -> None:
    index = filled([], [cluster_policy(egress=[egress("Deny", nodes(os="linux"))])])
    planner = Planner(Family.IPV4, "node1", report=True)
    before, used = planner.plan(index, index.take_changed())
    index.forget(used)
    index.set_node("node3", parse_cluster.node(node("node3", "198.51.100.3", os="linux")))
    after, used = planner.plan(index, index.take_changed())
    assert len(difference(before, after)) == 1
    assert not allowed(after, Flow(A, "198.51.100.3"))
    index.forget(used)
    index.set_node("node3", parse_cluster.node(node("node3", "198.51.100.3", os="linux", more="labels")))
    again, _ = planner.plan(index, index.take_changed())
    assert difference(after, again) == []
    index.set_node("node3", None)
    assert allowed(planner.plan(index, index.take_changed())[0], Flow(A, "198.51.100.3"))


_WORDS = st.sampled_from(["a1", "a2", "b1"])
_SELECTORS = st.one_of(
    st.just({}),
    st.builds(lambda word: {"matchLabels": {"app": word}}, _WORDS),
    st.builds(
        lambda operator, word: {"matchExpressions": [{"key": "app", "operator": operator, "values": [word]}]},
        st.sampled_from(["In", "NotIn"]),
        _WORDS,
    ),
    st.builds(
        lambda operator: {"matchExpressions": [{"key": "app", "operator": operator}]},
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
_TEAMS = st.sampled_from([{}, {"matchLabels": {"team": "red"}}, {"matchLabels": {"team": "blue"}}])
_PEOPLE = st.one_of(
    st.builds(lambda one: {"namespaces": one}, _TEAMS),
    st.builds(lambda one, other: {"pods": {"podSelector": one, "namespaceSelector": other}}, _SELECTORS, _TEAMS),
)
_CIDRS = ["0.0.0.0/0", "10.0.0.0/23", "10.0.0.0/24", "10.0.0.2/32", "192.0.2.0/24", "198.51.100.0/31", "fd00::/8"]
_PLACES = st.one_of(
    _PEOPLE,
    st.builds(lambda cidrs: networks(*cidrs), st.lists(st.sampled_from(_CIDRS), min_size=1, max_size=3)),
    st.sampled_from([nodes(), nodes(zone="b")]),
)
_PROTOCOLS = st.one_of(
    st.builds(port, st.integers(79, 82)),
    st.builds(lambda first, more: port(first, first + more), st.integers(78, 82), st.integers(1, 3)),
    st.builds(lambda first: port(first, protocol="udp"), st.integers(79, 82)),
)
_ACTIONS = st.sampled_from(["Accept", "Deny", "Pass"])


def _rule_lists(key: str, peers: Any) -> Any:
    with_ports = st.fixed_dictionaries(
        {"action": _ACTIONS, key: st.lists(peers, min_size=1, max_size=2)},
        optional={"protocols": st.lists(_PROTOCOLS, min_size=1, max_size=2)},
    )
    with_names = st.fixed_dictionaries(
        {"action": _ACTIONS, key: st.lists(_PEOPLE, min_size=1, max_size=2), "protocols": st.just([named("web")])}
    )
    return st.lists(st.one_of(with_ports, with_names), max_size=3)


_CLUSTER = st.lists(
    st.builds(
        lambda tier, priority, subject, one, other: cluster_policy(
            "", tier, priority, subject=subject, ingress=one, egress=other
        ),
        st.sampled_from([ADMIN, BASELINE]),
        st.integers(0, 2),
        _PEOPLE,
        _rule_lists("from", _PEOPLE),
        _rule_lists("to", _PLACES),
    ),
    max_size=4,
)
_POLICIES = st.lists(
    st.builds(
        lambda namespace, selector, types, one, other: policy(
            namespace=namespace, select=selector, policyTypes=types, ingress=one, egress=other
        ),
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, {"app": "a1"}]),
        st.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
        st.sampled_from([[], [{}], [{"from": [{"namespaceSelector": {}}]}]]),
        st.sampled_from([[], [{}], [{"to": [{"namespaceSelector": {}}]}]]),
    ),
    max_size=2,
)


@settings(max_examples=200)
@given(_POLICIES, _CLUSTER, st.sampled_from([6, 17]), st.integers(78, 86))
def test_verdicts_are_those_of_the_api_s_own_words(
    policies: list[Json], cluster: list[Json], protocol: int, number: int
) -> None:
    policies, cluster = numbered(policies), numbered(cluster)
    program = planned(policies, cluster)
    for client in (A, B, C, OUTSIDE):
        for server in (A, B, C, OUTSIDE, NODE2):
            flow = Flow(client, server, protocol, number)
            assert allowed(program, flow) is _allowed(policies, cluster, flow), flow
        flow = Flow(client, NODE1, protocol, number)
        assert allowed_to_node(program, flow) is (_verdict([], cluster, flow, "Egress", own_node=policies) != "Deny"), (
            flow
        )


@settings(max_examples=100)
@given(
    st.lists(st.tuples(_POLICIES, _CLUSTER, st.lists(st.booleans(), min_size=3, max_size=3)), min_size=2, max_size=4)
)
def test_any_change_is_one_transaction_that_the_kernel_takes(
    states: list[tuple[list[Json], list[Json], list[bool]]],
) -> None:
    index, table, applied = filled([], [], []), FakePolicyTable(), None
    planner = Planner(Family.IPV4, "node1", report=True)
    for policies, cluster, present in states:
        policies, cluster = numbered(policies), numbered(cluster)
        wanted = {parse.policy(one)[0].name: parse.policy(one)[0] for one in policies}
        for name in {name for there in index.policies_of.values() for name in there} | set(wanted):
            index.set_policy(name, wanted.get(name))
        found = {one["metadata"]["name"]: parse_cluster.cluster_policy(one)[0] for one in cluster}
        for key in set(index.cluster_policies) | set(found):
            index.set_cluster_policy(key, found.get(key))
        for obj, there in zip(PODS, present, strict=True):
            one = parse.pod(obj)
            index.set_pod(one.name, one if there else None)
        program, used = planner.plan(index, index.take_changed())
        index.forget(used)
        asyncio.run(table.commit(whole(program) if applied is None else difference(applied, program)))
        fresh = FakePolicyTable()
        afresh = planned(policies, cluster, [obj for obj, there in zip(PODS, present, strict=True) if there])
        asyncio.run(fresh.commit(whole(afresh)))
        assert table.content == fresh.content
        applied = program


def _allowed(policies: list[Json], cluster: list[Json], flow: Flow) -> bool:
    """ClusterNetworkPolicy as its API describes it, on the objects themselves."""
    for direction in ("Ingress", "Egress"):
        verdict = _verdict(policies, cluster, flow, direction)
        if verdict == "Deny":
            return False
    return True


def _verdict(
    policies: list[Json], cluster: list[Json], flow: Flow, direction: str, own_node: list[Json] | None = None
) -> str:
    """Accept or Deny. `own_node`: the NetworkPolicies, for a flow to the client's own node."""
    ends = {obj["status"]["podIPs"][0]["ip"]: obj for obj in PODS}
    own, other = (flow.server, flow.client) if direction == "Ingress" else (flow.client, flow.server)
    subject = ends.get(own)
    if subject is None:
        return "Accept"
    for tier in (ADMIN, "", BASELINE):
        if not tier:
            considered = policies if own_node is None else own_node
            if not isolating(considered, subject, direction):
                continue
            if own_node is not None or allows(policies, flow, directions=(direction,)):
                return "Accept"
            return "Deny"
        decided = _tier(cluster, tier, subject, other, flow, direction, ends)
        if decided in ("Accept", "Deny"):
            return decided
    return "Accept"


def _tier(
    cluster: list[Json], tier: str, subject: Json, other: str, flow: Flow, direction: str, ends: dict[str, Json]
) -> str:
    chosen = [one for one in cluster if one["spec"]["tier"] == tier and _selects(one["spec"]["subject"], subject)]
    for one in sorted(chosen, key=lambda one: (one["spec"]["priority"], one["metadata"]["name"])):
        for rule in one["spec"].get(direction.lower(), []):
            peers = rule["from" if direction == "Ingress" else "to"]
            if any(_is_peer(peer, other, ends) for peer in peers) and _is_port(rule.get("protocols"), flow, ends):
                return str(rule["action"])
    return ""


def _selects(peer: Json, pod_: Json) -> bool:
    labels = SPACES[pod_["metadata"]["namespace"]]
    if "namespaces" in peer:
        return fits(peer["namespaces"], labels)
    chosen = peer["pods"]
    return fits(chosen["namespaceSelector"], labels) and fits(chosen["podSelector"], pod_["metadata"]["labels"])


def _is_peer(peer: Json, address: str, ends: dict[str, Json]) -> bool:
    if "networks" in peer:
        return any(ip_address(address) in ip_network(one) for one in peer["networks"])
    if "nodes" in peer:
        fitting = [one for one in NODES if fits(peer["nodes"], one["metadata"]["labels"])]
        return address in [one["status"]["addresses"][0]["address"] for one in fitting]
    return address in ends and _selects(peer, ends[address])


def _is_port(protocols: list[Json] | None, flow: Flow, ends: dict[str, Json]) -> bool:
    if protocols is None:
        return True
    for one in protocols:
        kind, found = next(iter(one.items()))
        if kind == "destinationNamedPort":
            target = ends.get(flow.server)
            declared = target["spec"]["containers"][0]["ports"] if target else []
            if flow.protocol == 6 and any(x["name"] == found and x["containerPort"] == flow.port for x in declared):
                return True
            continue
        given = found["destinationPort"]
        ends_ = given["range"] if "range" in given else {"start": given["number"], "end": given["number"]}
        if {"tcp": 6, "udp": 17}[kind] == flow.protocol and ends_["start"] <= flow.port <= ends_["end"]:
            return True
    return False


NAMED = cluster_policy(
    egress=[
        egress("Accept", domains("*.example.com"), protocols=[port(443)]),
        egress("Deny", networks("0.0.0.0/0")),
    ],
    subject=pods("a1"),
)


def test_a_pod_reaches_what_it_has_been_told_and_connections_go_on_when_that_expires() -> None:
    program = planned([], [NAMED])
    (name,) = program.names
    known = layout.known_name(name)
    assert program.elements[name] == program.elements[known] == frozenset(), "what is learnt is no part of a plan"
    began, later = Flow(A, OUTSIDE, port=443), Flow(A, OUTSIDE, port=443, state="established,related")
    pair = frozenset((wire.plain(ip_address(A).packed + ip_address(OUTSIDE).packed),))

    def with_elements(**elements: frozenset[bytes]) -> tuple[bool, bool, bool]:
        filled = replace(program, elements={**program.elements, **elements})
        return allowed(filled, began), allowed(filled, later), allowed(filled, replace(began, port=80))

    assert with_elements() == (False, False, False)
    assert with_elements(**{name: pair, known: pair}) == (True, True, False)
    assert with_elements(**{known: pair}) == (False, True, False)


def test_only_answers_to_pods_with_such_rules_are_held_and_only_if_somebody_can_read_them() -> None:
    index = filled([], [NAMED])
    resolvers = Resolvers((ip_address("10.96.0.10"), ip_address("fd00::a")))
    planner = Planner(Family.IPV4, "node1", report=True, resolvers=resolvers)
    program, _ = planner.plan(index, index.take_changed())
    assert program.elements[cluster_layout.ASKING] == {wire.plain(ip_address(A).packed)}
    assert len(program.elements[cluster_layout.SERVERS]) == 1, "those of its family"
    often, held = program.chains[cluster_layout.ANSWERS]
    assert "@asking update @asking-often { ct original ip saddr timeout 10s limit rate over" in often.text(Family.IPV4)
    assert f"@asking queue flags bypass to {cluster_layout.QUEUE} " in held.text(Family.IPV4)
    assert cluster_layout.ANSWERS not in planned([], [NAMED]).chains
    index.set_cluster_policy("c", None)
    program, _ = planner.plan(index, index.take_changed())
    assert cluster_layout.ANSWERS not in program.chains and not program.names
