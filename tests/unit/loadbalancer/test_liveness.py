"""Which nodes are alive, by Leases that change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.plan.liveness import Liveness


def watched(until: float, *others: str, step: float = 0.5) -> Liveness:
    """All renew every half second until then, this daemon too."""
    one = Liveness("me", 2.0)
    for number in range(round(until / step) + 1):
        for name in ("me", *others):
            one.observe(name, f"{number}", number * step)
    return one


def test_a_lease_that_was_only_found_is_no_sign_of_life() -> None:
    one = watched(1.0)
    one.observe("old", "7", 1.0)
    assert one.live(1.1) == {"me"}
    one.observe("old", "8", 1.2)
    assert one.live(1.3) == {"me", "old"}


def test_a_node_dies_when_its_lease_stays_the_same() -> None:
    one = watched(5.0, "other")
    for number in range(11, 16):
        one.observe("me", f"{number}", number * 0.5)
    assert one.live(7.0) == {"me", "other"} and one.sure(7.0)
    assert one.live(7.1) == {"me"} and one.sure(7.1) and one.expired("other", 7.1)


def test_who_sees_nothing_not_even_himself_judges_nobody() -> None:
    one = watched(5.0, "other")
    assert not one.fresh(7.1) and not one.sure(7.1) and not one.expired("other", 7.1)
    one.observe("me", "new", 60.0)
    assert one.fresh(60.1) and not one.sure(60.1), "after a gap the others have their whole time again"
    assert not one.expired("other", 62.0) or one.fresh(62.0)
    one.observe("me", "new2", 61.9)
    assert one.sure(62.1) and one.expired("other", 62.1)


def test_a_lease_that_does_not_exist_is_expired_only_for_one_who_sees() -> None:
    one = Liveness("me", 2.0)
    assert not one.expired("leader", 0.0)
    one.observe("me", "1", 0.0)
    assert one.expired("leader", 0.1)
    one.forget("leader")
    assert one.expired("leader", 0.1)


def test_when_leases_are_renewed_more_often_all_prove_it_again() -> None:
    one = Liveness("me", 30.0)
    for number in range(5):
        for name in ("me", "other", "dead"):
            one.observe(name, f"{number}", number * 10.0)
    one.start_over(2.0, 45.0)
    assert one.live(45.0) == frozenset()
    one.observe("me", "a", 45.1)
    one.observe("other", "a", 45.2)
    assert one.live(45.3) == {"me", "other"} and not one.sure(45.3)


def test_one_who_may_not_announce_is_left_out() -> None:
    assert watched(1.0, "other").live(1.0, {"other"}) == {"other"}


@given(st.lists(st.tuples(st.sampled_from(["me", "a", "b"]), st.floats(0.01, 3.0)), max_size=60))
def test_nobody_is_called_dead_who_renewed_within_the_duration(steps: list[tuple[str, float]]) -> None:
    one, now, last = Liveness("me", 2.0), 0.0, {}
    for number, (name, pause) in enumerate(steps):
        now += pause
        one.observe(name, str(number), now)
        last[name] = now
        for other, at in last.items():
            if one.expired(other, now):
                assert now - at > 2.0
