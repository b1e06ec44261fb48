"""Which node announces which address."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.model import Name
from loadbalancer.plan.place import Endpoints, Nodes, place
from tests.builders.balanced import service

ADDRESS = ip_address("192.0.2.1")
CLUSTER, LOCAL = service("c"), service("l", externalTrafficPolicy="Local")


def nodes(*names: str, sure: bool = True) -> Nodes:
    return Nodes(frozenset(names), sure)


def nowhere(_: Name) -> Endpoints:
    return Endpoints()


@pytest.mark.parametrize(
    ("before", "there", "expected"),
    [
        pytest.param("", nodes("n1"), "n1", id="new"),
        pytest.param("n2", nodes("n1", "n2"), "n2", id="stays"),
        pytest.param("n2", nodes("n1"), "n1", id="taken-over"),
        pytest.param("n2", nodes("n1", sure=False), "n2", id="who-is-not-heard-yet-may-live"),
        pytest.param("", nodes("n1", sure=False), "n1", id="new-does-not-wait"),
        pytest.param("n2", nodes(), "", id="nobody"),
    ],
)
def test_policy_cluster(before: str, there: Nodes, expected: str) -> None:
    assert place({ADDRESS: [CLUSTER]}, {ADDRESS: before}, there, nowhere) == {ADDRESS: expected}


@pytest.mark.parametrize(
    ("before", "ready", "serving", "expected"),
    [
        pytest.param("n1", {"n2": 1}, {}, "n2", id="leaves-a-node-without-endpoints"),
        pytest.param("n1", {"n1": 1, "n2": 1}, {}, "n1", id="stays"),
        pytest.param("n1", {"n1": 1, "n2": 9}, {}, "n1", id="stays-where-there-are-fewer"),
        pytest.param("n1", {}, {"n1": 1}, "n1", id="endpoints-that-end-serve"),
        pytest.param("n1", {"n2": 1}, {"n1": 9}, "n2", id="ready-ones-are-better"),
        pytest.param("n1", {}, {}, "", id="no-endpoints"),
        pytest.param("n1", {"n9": 1}, {}, "", id="only-on-a-dead-node"),
        pytest.param("", {"n1": 1, "n2": 2}, {}, "n2", id="new-where-most-are-ready"),
        pytest.param("", {"n1": 2, "n2": 1}, {"n2": 9}, "n1", id="new-those-that-end-do-not-count"),
        pytest.param("", {"n1": 2, "n2": 1, "n9": 9}, {}, "n1", id="new-those-of-a-dead-node-do-not-count"),
        pytest.param("n9", {"n1": 1, "n2": 2}, {}, "n2", id="taken-over-where-most-are-ready"),
        pytest.param("n9", {}, {"n1": 1, "n2": 2}, "n2", id="taken-over-where-most-serve"),
    ],
)
def test_policy_local(before: str, ready: dict[str, int], serving: dict[str, int], expected: str) -> None:
    def endpoints(_: Name) -> Endpoints:
        return Endpoints(ready, serving)

    assert place({ADDRESS: [LOCAL]}, {ADDRESS: before}, nodes("n1", "n2"), endpoints) == {ADDRESS: expected}


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        pytest.param({"n1": 1, "n2": 2}, "n2", id="follows-the-most"),
        pytest.param({"n1": 2, "n2": 2}, "n1", id="stays-among-equals"),
        pytest.param({"n1": 1, "n9": 9}, "n1", id="not-to-a-dead-node"),
        pytest.param({"n2": 1}, "n2", id="leaves-a-node-without-endpoints"),
    ],
)
def test_while_it_is_fresh_it_follows_the_pods_as_they_become_ready(ready: dict[str, int], expected: str) -> None:
    def endpoints(_: Name) -> Endpoints:
        return Endpoints(ready)

    found = place({ADDRESS: [LOCAL]}, {ADDRESS: "n1"}, nodes("n1", "n2"), endpoints, frozenset({ADDRESS}))
    assert found == {ADDRESS: expected}


def test_a_fresh_one_of_policy_cluster_stays() -> None:
    there = nodes("n1", "n2", "n3")
    for node in ("n1", "n2", "n3"):
        assert place({ADDRESS: [CLUSTER]}, {ADDRESS: node}, there, nowhere, frozenset({ADDRESS})) == {ADDRESS: node}


def test_those_who_share_an_address_count_together() -> None:
    other = service("m", externalTrafficPolicy="Local")
    ready = {LOCAL.name: Endpoints({"n1": 2, "n2": 1, "n3": 9}), other.name: Endpoints({"n1": 2, "n2": 4})}
    found = place({ADDRESS: [LOCAL, other]}, {}, nodes("n1", "n2", "n3"), lambda name: ready[name])
    assert found == {ADDRESS: "n2"}, "n3 has endpoints of one of them only"


def test_addresses_are_spread() -> None:
    owners = {ip_address(number): [CLUSTER] for number in range(90)}
    found = place(owners, {}, nodes("n1", "n2", "n3"), nowhere)
    assert set(Counter(found.values()).values()) == {30}
    left = place(owners, found, nodes("n1", "n2"), nowhere)
    assert Counter(left.values()) == {"n1": 45, "n2": 45}
    assert all(left[one] == node for one, node in found.items() if node != "n3"), "nobody else moves"


_NODES = st.frozensets(st.sampled_from(["n1", "n2", "n3", "n4"]))


@given(
    st.dictionaries(st.integers(1, 30).map(ip_address), st.sampled_from(["n1", "n2", "n3", "", "gone"])),
    _NODES,
    st.booleans(),
    _NODES,
    st.booleans(),
)
def test_only_live_and_able_nodes_and_no_needless_move(
    before: dict[object, str], live: frozenset[str], sure: bool, ready: frozenset[str], local: bool
) -> None:
    owners = {one: [LOCAL if local else CLUSTER] for one in before}
    able = live & ready if local else live
    found = place(owners, before, Nodes(live, sure), lambda _: Endpoints(dict.fromkeys(ready, 1)))  # type: ignore[arg-type]
    for address, node in found.items():
        was = before[address]
        if was in able or (was and was not in live and not sure):
            assert node == was
        else:
            assert node in able if able else node == ""
