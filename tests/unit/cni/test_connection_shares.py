"""Whose connections are too many when the node's table fills, as tables: who is bounded, and what of theirs goes."""

from __future__ import annotations

import pytest

from cni.model import Connections, Held, Holder
from cni.plan import shares

LIMIT = 1000
PODS = {"10.0.0.1": "evil/a", "10.0.0.2": "evil/b", "10.0.0.3": "shop/web", "10.0.0.4": "shop/db", "fd00::1": "evil/a"}


def held(last: int, *row: int, received: bool = False) -> Held:
    return Held(Holder(f"10.0.0.{last}", received), *row)


def table(*rows: Held, others: int = 0) -> Connections:
    return Connections(others + sum(one.total for one in rows), rows)


def shared(found: Connections, before: dict[Holder, int] | None = None, limit: int = LIMIT) -> shares.Shares:
    return shares.share(found, limit, PODS, before or {})


@pytest.mark.parametrize(
    ("sizes", "room", "most"),
    [
        ([], 10, None),
        ([3, 4], 7, None),
        ([3, 4], 6, 3),
        ([1, 100, 100], 101, 50),  # what the small one does not want, the others have
        ([5, 5, 5], 0, 0),
        ([5], -3, 0),
    ],
)
def test_the_level_below_which_nobody_is_cut(sizes: list[int], room: int, most: int | None) -> None:
    assert shares.level(sizes, room) == most


@pytest.mark.parametrize(("entries", "seconds"), [(0, 1.0), (249, 1.0), (250, 0.5), (500, 0.1), (749, 0.1)])
def test_the_fuller_the_sooner_it_is_looked_at_again(entries: int, seconds: float) -> None:
    assert shares.pause(entries, LIMIT) == seconds


def test_a_table_with_room_bounds_nobody() -> None:
    assert shared(table(held(1, 0, 700), others=40)) == shares.Shares({})


def test_who_floods_is_cut_to_his_part_and_others_keep_theirs() -> None:
    found = shared(table(held(1, 0, 700), held(3, 0, 60, 20), others=20))
    # Half of the table, less 20 of others and 80 of shop.
    assert found == shares.Shares({Holder("10.0.0.1"): 400}, (held(1, 0, 300),))


def test_many_pods_of_a_namespace_have_one_part_together() -> None:
    found = shared(table(held(1, 0, 400), held(2, 0, 300), held(3, 0, 250)))
    assert found.parts == {Holder("10.0.0.1"): 125, Holder("10.0.0.2"): 125}


def test_a_small_pod_beside_a_flood_of_its_namespace_is_left_alone() -> None:
    found = shared(table(held(1, 0, 900), held(2, 0, 10)))
    assert found == shares.Shares({Holder("10.0.0.1"): 490}, (held(1, 0, 410),))


def test_nobody_is_cut_below_a_least_part() -> None:
    """The node itself has more than half of the table."""
    found = shares.share(table(held(1, 0, 30_000), others=180_000), 256_000, PODS, {})
    assert found.parts == {Holder("10.0.0.1"): 1000}


def test_what_has_no_answer_goes_first_and_living_connections_stay_if_that_is_enough() -> None:
    found = shared(table(held(1, 200, 200, 400)))
    assert found.cuts == (held(1, 200, 100),)


def test_living_connections_go_as_far_as_there_is_no_room_otherwise() -> None:
    found = shared(table(held(1, 50, 50, 600), held(3, 0, 0, 300)))
    # 250 each; 100 of evil's cost nothing, and 200 more must go to have 700.
    assert found.parts == {Holder("10.0.0.1"): 250, Holder("10.0.0.3"): 250}
    assert found.cuts == (held(1, 50, 50, 175), held(3, 0, 0, 25))
    assert 1000 - sum(one.total for one in found.cuts) <= 700


def test_living_connections_that_a_pod_has_received_are_never_cut() -> None:
    found = shared(table(held(3, 100, 100, 700, received=True)))
    assert found == shares.Shares({Holder("10.0.0.3", True): 500}, (held(3, 100, 100, received=True),))


def test_an_address_that_no_pod_has_is_on_its_own() -> None:
    found = shared(table(held(99, 800), held(1, 100)))
    assert found.parts == {Holder("10.0.0.99"): 400}


def test_both_families_of_a_pod_are_its_namespaces() -> None:
    other = Held(Holder("fd00::1"), 400)
    found = shared(table(held(1, 400), other, held(3, 100)))
    assert found.parts == {Holder("10.0.0.1"): 200, Holder("fd00::1"): 200}


@pytest.mark.parametrize(("now", "stays"), [(301, True), (300, False), (0, False)])
def test_a_bound_stays_until_there_are_clearly_fewer(now: int, stays: bool) -> None:
    before = {Holder("10.0.0.1"): 400}
    rows = [held(1, 0, now)] if now else []
    assert shared(table(*rows), before) == shares.Shares(before if stays else {})


def test_who_is_bounded_already_and_has_filled_the_table_again_is_cut_again() -> None:
    found = shared(table(held(1, 0, 800)), {Holder("10.0.0.1"): 450})
    assert found == shares.Shares({Holder("10.0.0.1"): 500}, (held(1, 0, 300),))


def test_words_name_the_direction() -> None:
    assert "that it began" in shares.words(held(1, 5), 3, LIMIT)
    assert "from outside of the node to it" in shares.words(held(1, 5, received=True), 3, LIMIT)
    assert shares.who(Holder("10.0.0.3"), PODS) == "shop/web"
    assert shares.who(Holder("10.0.0.99"), PODS) == "10.0.0.99"
