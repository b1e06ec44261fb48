"""The tables that policies become: who may reach whom in them, and how one becomes the next."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Name
from policy.plan import layout, parse
from policy.plan.difference import difference, whole
from policy.plan.index import Index
from policy.plan.program import Planner, Program
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed
from tests.unit.policy.world import PODS, A, B, C, allows, indexed, numbered, planned

ONE = {"app": "a1"}


@pytest.mark.parametrize(
    ("policies", "flow", "passes"),
    [
        ([], Flow(B, A), True),
        ([policy(select=ONE)], Flow(B, A), False),
        ([policy(select=ONE)], Flow(A, A), True),
        ([policy(select=ONE)], Flow(A, B), True),
        ([policy(select=ONE, ingress=[{}])], Flow("192.0.2.1", A, 1, 0), True),
        ([policy(select=ONE, ingress=[{"ports": [{}]}])], Flow(B, A, 6, 1), True),
        ([policy(select=ONE, ingress=[{"ports": [{}]}])], Flow(B, A, 1, 0), False),
        ([policy(select=ONE, ingress=[{"ports": [{"port": "web"}]}])], Flow(B, A, 6, 80), True),
        ([policy(select=ONE, ingress=[{"ports": [{"port": "web"}]}])], Flow(B, A, 6, 81), False),
        ([policy(policyTypes=["Egress"], egress=[{"ports": [{"port": "web"}]}])], Flow(A, C, 6, 81), True),
        ([policy(policyTypes=["Egress"], egress=[{"ports": [{"port": "web"}]}])], Flow(A, C, 6, 80), False),
        ([policy(policyTypes=["Egress"], egress=[{"to": [namespaces(team="blue")]}])], Flow(A, C), True),
        ([policy(policyTypes=["Egress"], egress=[{"to": [namespaces(team="blue")]}])], Flow(A, B), False),
        ([policy(ingress=[{"from": [{"namespaceSelector": {}}]}])], Flow(C, A), True),
        ([policy(ingress=[{"from": [{"namespaceSelector": {}}]}])], Flow("192.0.2.1", A), False),
        ([policy(ingress=[{"from": [block("0.0.0.0/0", "10.0.0.0/24")]}])], Flow(C, A), True),
        ([policy(ingress=[{"from": [block("0.0.0.0/0", "10.0.0.0/24")]}])], Flow(B, A), False),
        ([policy(ingress=[{"from": [block("fd00::/8")]}])], Flow(B, A), False),
    ],
)
def test_verdicts(policies: list[Json], flow: Flow, passes: bool) -> None:
    assert allowed(planned(PODS, policies), flow) is passes


def test_policies_share_the_sets_of_equal_selectors() -> None:
    entry = {"from": [apps("a1", "a2")], "ports": [{"port": 80}]}
    program = planned(PODS, [policy(f"p{number}", ingress=[entry]) for number in range(20)])
    assert sum(name.startswith(("peer-", "ports-")) for name in program.sets) == 2


def test_a_pod_that_comes_is_a_few_elements() -> None:
    policies = [policy(f"p{number}", ingress=[{"from": [apps("a1", "new")]}]) for number in range(50)]
    index = indexed(PODS, policies)
    planner = Planner(Family.IPV4, "node1", report=True)
    before, used = planner.plan(index, index.take_changed())
    index.forget(used)
    new = parse.pod(pod("new", "10.0.0.9"))
    index.set_pod(new.name, new)
    after, _ = planner.plan(index, index.take_changed())
    assert len(difference(before, after)) == 3, "one message each: the map, the set of peers, the set of itself"


def test_ten_thousand_ports_and_names_with_every_allowed_character() -> None:
    ports = [{"port": port} for port in range(1, 20_001, 2)]
    name = "a-0." + "b" * 200
    program = planned(PODS, [policy(name, ingress=[{"ports": ports}])])
    numbers = [raws for key, raws in program.elements.items() if key.startswith("ports-")]
    assert sum(map(len, numbers)) == 10_000
    assert all(len(key) < 128 for key in (*program.chains, *program.sets))
    table = FakePolicyTable()
    asyncio.run(table.commit(whole(program)))


_WORDS = st.sampled_from(["a1", "a2", "b1", "x"])
_SELECTORS = st.one_of(
    st.just({}),
    st.builds(lambda word: {"matchLabels": {"app": word}}, _WORDS),
    st.builds(
        lambda operator, words: {
            "matchExpressions": [{"key": "app", "operator": operator, "values": words if "In" in operator else []}]
        },
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(_WORDS, min_size=1, max_size=2),
    ),
)
_TEAMS = st.sampled_from([{}, {"matchLabels": {"team": "red"}}, {"matchLabels": {"team": "blue"}}])
_PEERS = st.one_of(
    st.builds(lambda one: {"podSelector": one}, _SELECTORS),
    st.builds(lambda one: {"namespaceSelector": one}, _TEAMS),
    st.builds(lambda one, other: {"podSelector": one, "namespaceSelector": other}, _SELECTORS, _TEAMS),
    st.builds(block, st.sampled_from(["10.0.0.0/23", "10.0.0.0/24", "0.0.0.0/0"]), st.sampled_from(["10.0.0.2/32"])),
)
_PORTS = st.one_of(
    st.builds(lambda port, more: {"port": port, "endPort": port + more}, st.integers(79, 82), st.integers(0, 3)),
    st.just({"port": "web"}),
    st.builds(lambda protocol: {"protocol": protocol}, st.sampled_from(["TCP", "UDP"])),
)


def _entries(key: str) -> Any:
    return st.lists(
        st.fixed_dictionaries({}, optional={key: st.lists(_PEERS, max_size=2), "ports": st.lists(_PORTS, max_size=2)}),
        max_size=2,
    )


_POLICIES = st.lists(
    st.builds(
        lambda namespace, selector, types, ingress, egress: {
            "metadata": {"namespace": namespace},
            "spec": {"podSelector": selector, "policyTypes": types, "ingress": ingress, "egress": egress},
        },
        st.sampled_from(["a", "b"]),
        _SELECTORS,
        st.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
        _entries("from"),
        _entries("to"),
    ),
    max_size=4,
)


@settings(max_examples=150)
@given(_POLICIES, st.sampled_from([6, 17]), st.integers(78, 86))
def test_verdicts_are_those_of_the_api_s_own_words(policies: list[Json], protocol: int, port: int) -> None:
    policies = numbered(policies)
    program = planned(PODS, policies)
    for client in (A, B, C, "192.0.2.1"):
        for server in (A, B, C, "192.0.2.1"):
            flow = Flow(client, server, protocol, port)
            assert allowed(program, flow) is allows(policies, flow), flow


def _as(state: str, obj: Json) -> list[Json]:
    """The pod in another state: gone, with other labels, or on another node."""
    if state == "elsewhere":
        return [obj | {"spec": {**obj["spec"], "nodeName": "node2"}}]
    if state:
        return [obj | {"metadata": {**obj["metadata"], "labels": {"app": state}}}]
    return []


_STATES = st.lists(st.sampled_from(["a1", "a1", "a2", "x", "elsewhere", ""]), min_size=3, max_size=3)


@settings(max_examples=150)
@given(st.lists(st.tuples(_POLICIES, _STATES, st.sampled_from(["red", "blue"])), min_size=2, max_size=4))
def test_any_change_is_one_transaction_that_the_kernel_takes(states: list[tuple[list[Json], list[str], str]]) -> None:
    """The fake refuses what is used before it is there or removed while it is used, as the real one does. What is kept
    of former plans makes no difference: a fresh planner of fresh objects writes the same table.
    """
    index = indexed([], [])
    tables = {family: FakePolicyTable(family) for family in Family}
    planners = {family: Planner(family, "node1", report=True) for family in Family}
    applied: dict[Family, Program] = {}
    for policies, of_pods, team in states:
        pods = [one for state, obj in zip(of_pods, PODS, strict=True) for one in _as(state, obj)]
        _set(index, policies, pods, team)
        changes = index.take_changed()
        used = set()
        for family, planner in planners.items():
            program, uses = planner.plan(index, changes)
            used |= uses
            last = applied.get(family)
            asyncio.run(tables[family].commit(whole(program) if last is None else difference(last, program)))
            applied[family] = program
            fresh, other = FakePolicyTable(family), indexed([], [])
            _set(other, policies, pods, team)
            afresh = Planner(family, "node1", report=True).plan(other, other.take_changed())[0]
            asyncio.run(fresh.commit(whole(afresh)))
            assert tables[family].content == fresh.content
        index.forget(used)


def _set(index: Index, policies: list[Json], pods: list[Json], team: str) -> None:
    """Make these all that there is."""
    wanted = {parse.policy(one)[0].name: parse.policy(one)[0] for one in numbered(policies)}
    for name in {name for there in index.policies_of.values() for name in there} | set(wanted):
        index.set_policy(name, wanted.get(name))
    index.set_namespace("a", {"team": team})
    there = {one.name: one for one in map(parse.pod, pods)}
    for name in set(index.pods) | set(there):
        index.set_pod(name, there.get(name))


def test_a_pod_that_was_just_given_an_address_is_protected_before_its_status_says_so() -> None:
    index = indexed([pod("a1", uid="u1")], [policy(select=ONE)])
    index.hold(Name("a", "a1"), "u1", (ip_address(A),))
    program, _ = Planner(Family.IPV4, "node1", report=True).plan(index, index.take_changed())
    assert len(program.elements[layout.MAPS[next(iter(layout.MAPS))]]) == 1
    assert not allowed(program, Flow(B, A))
    other = parse.pod(pod("a1", "10.0.0.7", uid="u2"))
    index.set_pod(other.name, other)
    program, _ = Planner(Family.IPV4, "node1", report=True).plan(index, index.take_changed())
    assert not allowed(program, Flow(B, A)), "the first one may run yet, though another has its name"
    assert not allowed(program, Flow(B, "10.0.0.7"))


def test_a_peer_that_gets_another_address_or_port_is_followed() -> None:
    index = indexed(PODS, [policy(select=ONE, ingress=[{"from": [apps("a2")]}]), policy("q", select={"app": "a2"})])
    index.set_policy(Name("a", "r"), parse.policy(policy("r", select=ONE, ingress=[{"ports": [{"port": "web"}]}]))[0])
    planner = Planner(Family.IPV4, "node1", report=True)
    _, used = planner.plan(index, index.take_changed())
    index.forget(used)
    index.take_changed()
    for obj in (pod("a2", "10.0.0.8"), pod("a1", A, ports={"web": 88})):
        one = parse.pod(obj)
        index.set_pod(one.name, one)
    program, _ = planner.plan(index, index.take_changed())
    assert allowed(program, Flow("10.0.0.8", A)) and not allowed(program, Flow(B, A))
    assert allowed(program, Flow(B, A, 6, 88))
