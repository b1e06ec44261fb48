"""Policies and pods of somebody who wants the node's rules to be late, refused or wrong."""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.addresses import hardware_address
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Name, NamedPort, Requirement, Selection, Selector
from policy.plan import layout, parse
from policy.plan.difference import whole
from policy.plan.entries import MOST, MOST_RANGES
from policy.plan.index import Index
from policy.plan.program import Planner, Program
from tests.builders.policies import apps, block, pod, policy
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed

EVIL, VICTIM = "10.0.0.1", "10.0.0.2"


def indexed(pods: list[Json], policies: list[Json]) -> Index:
    index = Index()
    for name in ("a", "b"):
        index.set_namespace(name, {})
    for obj in pods:
        one = parse.pod(obj)
        index.set_pod(one.name, one)
    for obj in policies:
        found, _ = parse.policy(obj)
        index.set_policy(found.name, found)
    return index


def planned(index: Index, planner: Planner | None = None) -> Program:
    planner = planner or Planner(Family.IPV4, "node1", report=False)
    program, used = planner.plan(index, index.take_changed())
    index.forget(used)
    return program


def addresses(count: int, length: int = 32) -> list[str]:
    """Networks that do not touch."""
    return [f"10.{number >> 15 & 255}.{number >> 7 & 255}.{(number & 127) * 2}/{length}" for number in range(count)]


PODS = [pod("evil", EVIL), pod("victim", VICTIM, namespace="b")]
LARGE: dict[str, list[Json]] = {
    "peers times names of ports": [
        {"from": [block(one) for one in addresses(3000)], "ports": [{"port": f"p{number}"} for number in range(3000)]}
    ],
    "selectors times names of ports": [
        {"from": [apps(f"x{number}") for number in range(3000)], "ports": [{"port": "a"}, {"port": "b"}, {"port": 1}]}
    ],
    "exceptions": [{"from": [block("10.0.0.0/8", *addresses(120_000))]}],
    "entries": [{"ports": [{"port": 1 + number % 65535, "protocol": "UDP"}]} for number in range(60_000)],
}


@pytest.mark.parametrize(("name", "bounded"), [*zip(LARGE, (False, True, True, True), strict=True)])
def test_the_work_for_one_policy_and_its_namespace_is_bounded(name: str, bounded: bool) -> None:
    """`bounded`: it is more than a namespace may have; the first needs a few rules only."""
    ingress = LARGE[name]
    own = [policy(f"large{number}", ingress=ingress) for number in range(2)]
    index = indexed(PODS, [*own, policy("of-b", namespace="b", ingress=[{"from": [apps("victim")]}])])
    began = time.process_time()
    program = planned(index)
    assert time.process_time() - began < 10
    size = sum(map(len, program.chains.values())) + sum(map(len, program.elements.values()))
    assert size < 1.1 * MOST
    assert {one.namespace for one in program.left_out} == ({"a"} if bounded else set())
    assert not allowed(program, Flow("192.0.2.1", EVIL)), "what is left out allows nothing"
    assert sum(name.startswith("peer-") for name in program.sets) < MOST / 10


def fitting_all(count: int, name: str = "large") -> Json:
    """A policy whose selectors are all others, and fit all pods."""
    wanted = ({"matchExpressions": [{"key": f"no{number}", "operator": "DoesNotExist"}]} for number in range(count))
    return policy(name, ingress=[{"from": [{"namespaceSelector": {}, "podSelector": one} for one in wanted]}])


def crowd(count: int) -> list[Json]:
    """Pods of another node."""
    found = ((f"p{number}", str(ip_address(0x0B000000 + number))) for number in range(count))
    return [pod(name, ip, namespace="b", node="node2", ports={"web": 80}) for name, ip in found]


def test_selectors_that_fit_the_pods_of_the_whole_cluster_are_paid_for_with_these() -> None:
    """Thousands of them, in one policy, took the daemon half a minute in a cluster of a thousand pods: every new pod of
    the node failed meanwhile.
    """
    of_b = policy("of-b", namespace="b", ingress=[{"from": [{"namespaceSelector": {}}]}])
    program = planned(indexed([*PODS, *crowd(1000)], [fitting_all(3000), of_b]))
    assert program.left_out == (Name("a", "large"),)
    assert sum(map(len, program.elements.values())) < 2000
    assert not allowed(program, Flow("192.0.2.1", EVIL)), "what is left out allows nothing"
    assert allowed(program, Flow("11.0.0.5", VICTIM)), "what others have allowed goes on"
    few = planned(indexed([*PODS, *crowd(1000)], [fitting_all(100)]))
    assert not few.left_out and allowed(few, Flow("11.0.0.5", EVIL))


def test_sets_that_policies_share_are_paid_for_once() -> None:
    policies = [fitting_all(100, f"p{number}") for number in range(20)]
    assert not planned(indexed([*PODS, *crowd(1000)], policies)).left_out


def test_policies_have_room_by_the_pods_that_there_are() -> None:
    index, planner = indexed(PODS, [fitting_all(2500)]), Planner(Family.IPV4, "node1", report=False)
    assert not planned(index, planner).left_out
    for obj in (many := crowd(1000)):
        index.set_pod((one := parse.pod(obj)).name, one)
    assert planned(index, planner).left_out == (Name("a", "large"),)
    for obj in many:
        index.set_pod(parse.pod(obj).name, None)
    assert not planned(index, planner).left_out


def test_a_pod_is_not_asked_about_the_policies_of_others() -> None:
    """20,000 policies of 100 bytes: each change of a pod took every node 5 ms, and 25 ms of one of that namespace."""
    index = indexed(PODS, [policy(f"p{number}", select={"one": str(number)}) for number in range(20_000)])
    planned(index)
    began = time.process_time()
    for number in range(400):
        for obj in (pod("evil", EVIL, labels={"one": str(number)}), pod("victim", VICTIM, namespace="b")):
            obj["metadata"]["labels"]["turn"] = str(number)
            one = parse.pod(obj)
            index.set_pod(one.name, one)
    assert time.process_time() - began < 1
    (selection,) = {one.selection for one in index.policies_of["a"].values() if one.name.name == "p399"}
    assert index.members(selection) == {Name("a", "evil")}


WORDS = st.sampled_from("xyz")
REQUIREMENTS = st.tuples(
    st.sampled_from("kl"), st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), WORDS, WORDS
)
SELECTORS = st.lists(REQUIREMENTS, max_size=2).map(
    lambda chosen: Selector(
        tuple(Requirement(key, how, frozenset(two) if how.endswith("In") else frozenset()) for key, how, *two in chosen)
    )
)
SELECTIONS = st.builds(Selection, SELECTORS, st.sampled_from("ab")) | st.builds(
    lambda pods, spaces: Selection(pods, namespaces=spaces), SELECTORS, SELECTORS
)
LABELS = st.dictionaries(st.sampled_from("kl"), WORDS)
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from("ab"), LABELS | st.none()),
    st.tuples(st.just("namespace"), st.sampled_from("ab"), LABELS | st.none()),
    st.tuples(st.just("ask"), SELECTIONS | st.sampled_from([NamedPort("TCP", one) for one in "xy"]), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 3), st.none()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_what_selects_a_pod_is_found_by_its_labels_as_if_all_were_asked(steps: list[Any]) -> None:
    index = Index()
    asked: list[Any] = []
    for what, one, labels in steps:
        if what == "pod":
            obj = pod("p", EVIL, namespace=one, labels=labels or {}, ports=dict.fromkeys(labels or {}, 80))
            index.set_pod(Name(one, "p"), None if labels is None else parse.pod(obj))
        elif what == "namespace":
            index.set_namespace(one, labels)
        elif what == "ask":
            (index.having if isinstance(one, NamedPort) else index.members)(one)
            asked.append(one)
        else:
            asked = asked[one:]
            index.forget(set(asked))
        kept: set[Any] = set(asked)
        fresh = Index()
        for space, labelled in index._namespaces.items():
            fresh.set_namespace(space, labelled)
        for name, found in index.pods.items():
            fresh.set_pod(name, found)
        before = {
            each: set(index.having(each) if isinstance(each, NamedPort) else index.members(each)) for each in kept
        }
        assert before == {
            each: fresh.having(each) if isinstance(each, NamedPort) else fresh.members(each) for each in kept
        }
    index.forget(set())
    assert not index._in and not index._places


def test_names_of_ports_that_all_pods_have_are_paid_for_with_these() -> None:
    ports = [{"ports": [{"port": "web"}, {"port": f"x{number}"}]} for number in range(3000)]
    program = planned(indexed([*PODS, *crowd(1000)], [policy("large", ingress=ports)]))
    assert program.left_out == (Name("a", "large"),)


def test_a_policy_without_pods_of_this_node_asks_nobody() -> None:
    index = indexed([PODS[1], *crowd(1000)], [fitting_all(3000)])
    program = planned(index)
    assert not program.left_out and not any(name.startswith("peer-") for name in program.sets)


def test_what_was_left_out_is_in_force_when_there_is_room_again() -> None:
    index = indexed(PODS, [policy("a", ingress=[{"from": [block("10.0.0.0/8", *addresses(MOST))]}])])
    index.set_policy(Name("a", "z"), parse.policy(policy("z", ingress=[{"from": [block("192.0.2.0/24")]}]))[0])
    planner = Planner(Family.IPV4, "node1", report=False)
    assert planned(index, planner).left_out == (Name("a", "a"),)
    assert allowed(planned(index, planner), Flow("192.0.2.1", EVIL)), "a smaller one of the namespace has room"
    index.set_policy(Name("a", "a"), parse.policy(policy("a"))[0])
    assert planned(index, planner).left_out == ()


def test_pods_that_many_policies_select_each_in_another_way() -> None:
    """Each pod has a chain of its own that leads to thousands: pods times policies."""
    pods = [pod(f"x{one}", f"10.0.1.{one}", labels={f"not-{one}": ""}) for one in range(100)]
    policies = [policy(f"p{one}", ingress=[]) for one in range(1000)]
    for number, one in enumerate(policies[:100]):
        one["spec"]["podSelector"] = {"matchExpressions": [{"key": f"not-{number}", "operator": "DoesNotExist"}]}
    program = planned(indexed([*PODS, *pods], [*policies, policy("of-b", namespace="b")]))
    assert sum(map(len, program.chains.values())) < MOST
    assert program.left_out
    for address in (EVIL, "10.0.1.7", "10.0.1.99", VICTIM):
        assert not allowed(program, Flow("192.0.2.1", address)), "isolated all the same"


def test_ranges_are_split_because_the_kernel_takes_quadratic_time_for_a_set() -> None:
    networks = addresses(3 * MOST_RANGES)
    program = planned(indexed(PODS, [policy(ingress=[{"from": [block(one) for one in networks]}])]))
    sizes = [len(raws) for name, raws in program.elements.items() if name.startswith("block-")]
    assert len(sizes) == 3 and max(sizes) <= MOST_RANGES
    assert len(program.chains[layout.policy_chain_name(Name("a", "p"), next(iter(layout.MAPS)))]) == 3
    for one in (networks[0], networks[-1]):
        assert allowed(program, Flow(one.partition("/")[0], EVIL))
    assert not allowed(program, Flow("10.0.0.3", EVIL))


POLICIES = [policy("mine"), policy("theirs", namespace="b", ingress=[{"from": [block("192.0.2.0/24")]}])]


def commit(program: Program) -> None:
    asyncio.run(FakePolicyTable().commit(whole(program)))


def test_two_pods_with_one_address_do_not_stop_the_rules_of_the_node() -> None:
    """The kernel refuses the whole transaction when one address leads to two chains."""
    index = indexed([pod("evil", VICTIM), pod("victim", VICTIM, namespace="b")], POLICIES)
    commit(planned(index))


@pytest.mark.parametrize("late", [False, True], ids=["status first", "status last"])
def test_an_address_belongs_to_the_pod_that_the_runtime_gave_it(late: bool) -> None:
    stale = parse.pod(pod("evil", VICTIM))
    index = indexed([pod("victim", namespace="b", uid="u")], POLICIES)
    if not late:
        index.set_pod(stale.name, stale)
    index.hold(Name("b", "victim"), "u", (ip_address(VICTIM),))
    if late:
        index.set_pod(stale.name, stale)
    for status in ((), (VICTIM,)):
        one = parse.pod(pod("victim", *status, namespace="b", uid="u"))
        index.set_pod(one.name, one)
        program = planned(index)
        commit(program)
        assert allowed(program, Flow("192.0.2.1", VICTIM)), "the victim's policies, not those of the other pod"
    index.set_pod(Name("b", "victim"), parse.pod(pod("victim", VICTIM, namespace="b", uid="u", phase="Failed")))
    index.set_pod(Name("b", "victim"), None)
    index.set_pod(stale.name, stale)
    assert not allowed(planned(index), Flow("192.0.2.1", VICTIM)), "nobody has it any more"


SENDS = {"policyTypes": ["Egress"]}


def left_pod(**spec: Any) -> Index:
    """The pod evil was deleted by force: its processes go on for as long as its grace."""
    index = indexed([pod("evil", EVIL, uid="u"), pod("other", VICTIM, uid="v")], [policy(**spec)])
    index.hold(Name("a", "evil"), "u", (ip_address(EVIL),))
    one = parse.pod(pod("evil", EVIL, uid="u"))
    index.set_pod(one.name, one)
    index.set_pod(one.name, None)
    return index


def test_who_deletes_a_pod_by_force_does_not_take_it_out_of_its_policies() -> None:
    index = left_pod(**SENDS)
    own = hardware_address(ip_address(EVIL))
    program = planned(index)
    commit(program)
    assert not allowed(program, Flow(EVIL, "192.0.2.1"))
    assert not allowed(program, Flow(VICTIM, "192.0.2.1", sender=own)), "nor by another address"
    assert not allowed(planned(left_pod()), Flow("192.0.2.1", EVIL))


def test_a_new_pod_of_the_same_name_does_not_either() -> None:
    index = left_pod(**SENDS)
    new = parse.pod(pod("evil", "10.0.0.9", uid="w", labels={"app": "another"}))
    index.set_pod(new.name, new)
    assert not allowed(planned(index), Flow(EVIL, "192.0.2.1")), "the old one goes on"
    index.set_pod(new.name, None)
    index.set_namespace("a", None)
    assert not allowed(planned(index), Flow(EVIL, "192.0.2.1"))


def test_a_pod_that_has_left_is_nobodys_peer_and_gives_its_address_to_the_next() -> None:
    index = left_pod(select={"app": "other"}, ingress=[{"from": [apps("evil")]}])
    assert not allowed(planned(index), Flow(EVIL, VICTIM))
    index = left_pod(**SENDS)
    new = parse.pod(pod("new", namespace="c", uid="n"))
    index.set_namespace("c", {})
    index.set_pod(new.name, new)
    index.hold(new.name, "n", (ip_address(EVIL),))
    assert allowed(planned(index), Flow(EVIL, "192.0.2.1")), "no policy of its own"
    assert new.name in index.runtimes and len(index.runtimes) == 1


def test_a_static_pod_whose_object_was_deleted_has_its_address_when_it_is_there_again() -> None:
    index = left_pod(select={"app": "other"}, ingress=[{"from": [apps("evil")]}])
    again = parse.pod(pod("evil", EVIL, uid="u"))
    index.set_pod(again.name, again)
    assert allowed(planned(index), Flow(EVIL, VICTIM)), "a peer again"
    assert list(index.runtimes) == [again.name]


def test_an_address_of_this_node_is_nobody_elses_peer() -> None:
    forged = parse.pod(pod("forged", VICTIM, node="node2", labels={"app": "trusted"}))
    index = indexed(
        [pod("evil", EVIL, uid="u"), pod("victim", uid="v")], [policy(ingress=[{"from": [apps("trusted")]}])]
    )
    index.hold(Name("a", "victim"), "v", (ip_address(VICTIM),))
    index.set_pod(forged.name, forged)
    assert not allowed(planned(index), Flow(VICTIM, EVIL))


def test_a_pod_that_the_runtime_named_sends_by_its_own_addresses_only() -> None:
    index = indexed([pod("evil", EVIL, uid="u"), pod("victim", VICTIM, namespace="b")], [])
    index.hold(Name("a", "evil"), "u", (ip_address(EVIL), ip_address("fd00::1")))
    own = hardware_address(ip_address(EVIL))
    program = planned(index)
    assert [allowed(program, Flow(one, "192.0.2.1", sender=own)) for one in (EVIL, VICTIM, "10.0.0.77")] == [
        *(True, False, False)
    ]
    assert allowed(program, Flow(VICTIM, "192.0.2.1", sender="0a:58:0a:00:00:02")), "not known from the runtime"
    index.set_pod(Name("a", "evil"), parse.pod(pod("evil", EVIL, uid="u", phase="Succeeded")))
    assert not planned(index).elements[layout.SENDERS]


def test_an_annotation_of_a_user_does_not_change_who_a_pod_is() -> None:
    """Else a pod whose address is not in its status yet loses its policies by an annotation."""
    obj = pod("evil", uid="u")
    index = indexed([obj], [policy()])
    index.hold(Name("a", "evil"), "u", (ip_address(EVIL),))
    obj["metadata"]["annotations"] = {"kubernetes.io/config.hash": "another"}
    one = parse.pod(obj)
    index.set_pod(one.name, one)
    assert not allowed(planned(index), Flow("192.0.2.1", EVIL))


@pytest.mark.parametrize(
    "peer", [block("10.0.0.0/8", "::ffff:10.1.0.0/112"), block("::ffff:10.1.0.0/112"), block("::/0", "::ffff:0:0/96")]
)
def test_ipv4_written_as_ipv6_is_not_understood_rather_than_ignored(peer: Json) -> None:
    """The API server takes such an exception for one of the IPv4 block; ignored, it would open what it closes."""
    found, problems = parse.policy(policy(ingress=[{"from": [peer]}]))
    assert problems
    assert all(rule.peers == () for rules in found.rules.values() for rule in rules)


def test_changes_of_a_pod_with_tens_of_thousands_of_labels() -> None:
    """All of them were looked up, in the work that new pods of anybody wait for: 0.05 s for each change."""
    given = {f"l{number:06}": "x" for number in range(40_000)}
    ones = [parse.pod(pod("evil", EVIL, labels={**given, "app": app})) for app in ("a", "b")]
    index = indexed([], [])
    selections = [Selection(Selector((Requirement("app", "In", frozenset((app,))),)), "a") for app in ("a", "b")]
    for number in range(2000):
        index.members(Selection(Selector((Requirement(f"l{number:06}", "In", frozenset(("y",))),)), "a"))
    members = [index.members(one) for one in selections]
    index.set_pod(ones[0].name, ones[0])
    began = time.process_time()
    for number in range(1, 21):
        index.set_pod(ones[0].name, ones[number % 2])
        assert [len(one) for one in members] == [1 - number % 2, number % 2]
    assert time.process_time() - began < 0.5
    index.forget(set())
    assert not index._keys and not index._places
