"""What is remembered of refused packets, and that a flood of one pod pushes out nobody else's."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.drops.model import Drop, Flow, Near
from policy.drops.plan.document import as_json, document, reported_drop, reported_drops
from policy.drops.plan.remembered import MOST, Drops
from policy.model import Direction, Name

ONE = Name("a", "one")


def flow(client: int = 1, port: int = 80, server: str = "10.0.0.1") -> Flow:
    return Flow(Direction.INGRESS, ip_address("192.0.2.0") + client, ip_address(server), "TCP", port)


def test_the_same_flow_counts_up_and_moves_to_the_end() -> None:
    drops = Drops()
    drops.seen(flow(1), 10.0, None, ONE)
    drops.seen(flow(2), 11.0, None, ONE)
    again = drops.seen(flow(1), 12.0, None, ONE)
    assert (again.count, again.first, again.last, again.number) == (2, 10.0, 12.0, 3)
    assert [one.flow for one in drops.since(0)] == [flow(2), flow(1)]
    assert [one.flow for one in drops.since(2)] == [flow(1)] and drops.since(3) == []


def test_an_address_that_another_pod_has_now_begins_anew() -> None:
    drops = Drops()
    drops.seen(flow(), 10.0, None, ONE)
    assert drops.seen(flow(), 20.0, None, Name("a", "two")).count == 1


def test_a_scan_of_one_pod_pushes_out_nothing_of_another() -> None:
    drops = Drops()
    drops.seen(flow(server="10.0.0.2"), 0.0, None, None)
    for port in range(10_000):
        drops.seen(flow(port % 200, port), 1.0, None, ONE)
    assert len(drops) == 65 and drops.get(flow(server="10.0.0.2")) is not None


def test_all_together_are_bounded() -> None:
    drops = Drops()
    for number in range(3 * MOST):
        drops.seen(flow(server=f"10.0.{number >> 8}.{number & 255}"), 0.0, None, None)
    assert len(drops) == MOST and len(drops._of) == MOST


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(1, 3)), max_size=400))
def test_numbers_grow_and_the_list_is_in_their_order(packets: list[tuple[int, int, int]]) -> None:
    drops = Drops()
    for client, port, server in packets:
        drops.seen(flow(client, port, f"10.0.0.{server}"), 0.0, None, None)
    numbers = [one.number for one in drops.since(0)]
    assert numbers == sorted(set(numbers)) and drops.number == len(packets)
    assert sum(map(len, drops._of.values())) == len(drops)


def a_drop() -> Drop:
    near = Near(Name("a", "p"), "ingress[0]", "port", "ingress[0] allows this peer, but only 81/TCP, not 80/TCP")
    return Drop(7, flow(), 1.5, 2.5, 3, None, ONE, (Name("a", "p"),), (near,))


def test_what_is_told_is_what_is_read() -> None:
    one = reported_drop(document(a_drop()))
    assert one is not None
    assert (one.client.pod, one.server.pod, one.port_words, one.count, one.last) == ("", "a/one", "80/TCP", 3, 2.5)
    assert one.policies == ("a/p",) and one.remedy == "a/p ingress[0], if it listed port 80/TCP"
    assert as_json(one)["why"] == {"a/p": "ingress[0] allows this peer, but only 81/TCP, not 80/TCP"}


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted(document(a_drop()))), _ANY)
def test_who_answers_in_the_daemons_place_does_no_harm(key: str, value: object) -> None:
    reported_drops({"drops": [document(a_drop()) | {key: value}, value]})
    reported_drops({"drops": value})


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "x" * 5000])
def test_texts_of_others_drive_no_terminal(text: str) -> None:
    one = reported_drop(
        document(a_drop()) | {"policies": [text], "wouldAllow": text, "from": {"address": text, "pod": text}}
    )
    assert one is not None
    for shown in (*one.policies, one.remedy, one.client.pod, one.client.address):
        assert shown.isprintable() and len(shown) <= 500
