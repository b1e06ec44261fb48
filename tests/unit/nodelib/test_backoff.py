"""Pauses between tries grow, with jitter, and start over after a success."""

import pytest

from nodelib.backoff import Backoff


def test_the_other_side_may_ask_for_a_longer_pause() -> None:
    pause = Backoff(1.0, 8.0)
    assert [pause.next(5.0), pause.next(None), pause.next(0.5), pause.next()] == [5.0, 2.0, 4.0, 8.0]


def test_pauses_grow_to_the_longest_and_start_over_after_a_success() -> None:
    pause = Backoff(0.2, 1, growth=2)
    assert [pause.next() for _ in range(5)] == pytest.approx([0.2, 0.4, 0.8, 1, 1])
    pause.reset()
    assert pause.next() == pytest.approx(0.2)


def test_jitter_spreads_each_pause_and_not_the_growth() -> None:
    pauses = [Backoff(1, 8, jitter=0.2) for _ in range(50)]
    first = [pause.next() for pause in pauses]
    assert all(0.8 <= one <= 1.2 for one in first) and len(set(first)) > 1
    assert {pause.current for pause in pauses} == {2}
