"""Signals and observables call their followers, and whoever waits for them is woken at once."""

from __future__ import annotations

import asyncio

from agent.common.work.observable import Observable, Signal, until, until_within
from tests.fakes.clock import FakeClock, settle


def test_a_signal_calls_all_followers_until_they_unfollow() -> None:
    signal, calls = Signal(), list[str]()

    def first() -> None:
        calls.append("first")
        signal.unfollow(first)

    signal.follow(first)
    signal.follow(lambda: calls.append("second"))
    signal.fire()
    signal.fire()
    assert calls == ["first", "second", "second"]


def test_an_observable_reports_only_changes() -> None:
    value, seen = Observable(1), list[int]()
    value.follow(lambda: seen.append(value.now))
    for fresh in (1, 2, 2, 3):
        value.set(fresh)
    assert seen == [2, 3]


async def test_until_returns_at_the_first_value_that_holds() -> None:
    value = Observable(0)
    waiting = asyncio.create_task(until(value, lambda now: now > 1))
    await settle()
    value.set(1)
    await settle()
    assert not waiting.done()
    value.set(2)
    await asyncio.wait_for(waiting, 10)
    assert value.now == 2


async def test_until_within_asks_again_each_time_the_signal_fires() -> None:
    """The clock stands still, so that nothing but the signal can wake it."""
    signal, clock, done = Signal(), FakeClock(), list[int]()
    waiting = asyncio.create_task(until_within(signal, lambda: len(done) == 2, clock, 10))
    for number in range(2):
        await settle()
        assert not waiting.done()
        done.append(number)
        signal.fire()
    assert await asyncio.wait_for(waiting, 10) is True


async def test_until_within_gives_up_when_its_time_is_over() -> None:
    signal, clock = Signal(), FakeClock()
    waiting = asyncio.create_task(until_within(signal, lambda: False, clock, 10))
    await clock.advance(9)
    signal.fire()
    await settle()
    assert not waiting.done()
    await clock.advance(1.5)
    assert await asyncio.wait_for(waiting, 10) is False


async def test_until_within_needs_no_time_for_what_holds_already() -> None:
    assert await until_within(Signal(), lambda: True, FakeClock(), 0) is True
