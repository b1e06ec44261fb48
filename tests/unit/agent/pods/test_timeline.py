"""The timeline of a pod: times, outcomes, parts of steps, and its bound."""

import asyncio

import pytest

from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.timeline import Timeline
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock

START, RUN = Activity(ActivityKind.START, "app"), Activity(ActivityKind.RUN, "app")
PULL, READY = Activity(ActivityKind.PULL, "app"), Activity(ActivityKind.READY)


async def test_a_step_has_its_time_its_outcome_and_its_parts() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    start = clock.now()
    with timeline.step(START):
        await clock.advance(1)
        with timeline.step(RUN, of=START):
            assert [one.what for one in timeline.under_way()] == [START, RUN]
            await clock.advance(2)
    outer, inner = timeline.entries()
    assert (outer.what, outer.at, outer.seconds, outer.outcome) == (START, start, 3, "ok")
    assert (inner.what, inner.of, inner.at, inner.seconds) == (RUN, START, start + 1, 2)
    assert timeline.under_way() == ()


async def test_a_repeated_failure_is_one_entry_with_a_count() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    for port in (4001, 4002, 4003):
        with pytest.raises(Temporary), timeline.step(PULL):
            raise Temporary(f"dial [::1]:{port}->[::1]:53: refused")
        timeline.mark(READY)
        await clock.advance(10)
    pull, other = timeline.entries()
    assert (pull.times, pull.last_at - pull.at, other.times) == (3, 20, 3)


async def test_another_outcome_is_another_entry() -> None:
    timeline = Timeline(FakeClock())
    timeline.mark(Activity(ActivityKind.ENDED, "app"), outcome="exit code 1")
    timeline.mark(Activity(ActivityKind.ENDED, "app"), outcome="exit code 2")
    timeline.mark(Activity(ActivityKind.ENDED, "app"), outcome="exit code 1")
    assert [one.outcome for one in timeline.entries()] == ["exit code 1", "exit code 2", "exit code 1"]


async def test_a_cancelled_step_is_interrupted() -> None:
    timeline = Timeline(FakeClock())
    with pytest.raises(asyncio.CancelledError), timeline.step(Activity(ActivityKind.STOP, "app"), note="deleted"):
        raise asyncio.CancelledError
    (only,) = timeline.entries()
    assert (only.outcome, only.note) == ("interrupted", "deleted")


async def test_the_timeline_is_bounded() -> None:
    timeline = Timeline(FakeClock())
    for number in range(200):
        timeline.mark(Activity(ActivityKind.START, f"app-{number}"))
    entries = timeline.entries()
    assert len(entries) == 96
    assert entries[-1].what.container == "app-199"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (Activity(ActivityKind.START, "app"), "start app"),
        (Activity(ActivityKind.IMAGE, volume="data"), "image of volume data"),
        (Activity(ActivityKind.PULL, volume="data"), "pull for volume/data"),
        (Activity(ActivityKind.PULL, "app"), "pull for app"),
        (Activity(ActivityKind.STOP_SANDBOX), "stop sandbox"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_words(what: Activity, words: str) -> None:
    assert what.words == words


def test_attempts_share_an_entry_that_names_the_newest() -> None:
    timeline = Timeline(FakeClock())
    for attempt in range(3):
        timeline.mark(Activity(ActivityKind.ENDED, "app"), outcome="exit code 1", attempt=attempt)
    (only,) = timeline.entries()
    assert (only.times, only.attempt) == (3, 2)


@pytest.mark.parametrize(
    ("first", "second", "entries"),
    [
        (f"{'a1' * 32}: start container: no such file", f"{'b2' * 32}: start container: no such file", 1),
        ("dial tcp 10.0.0.1:4711->10.0.0.2:80: refused", "dial tcp 10.0.0.1:4712->10.0.0.2:80: refused", 1),
        ("mount (via /proc/self/fd/6): not a directory", "mount (via /proc/self/fd/11): not a directory", 1),
        ("exit code 1", "exit code 2", 2),
    ],
    ids=["container id", "local port", "descriptor", "another error"],
)
def test_the_same_failure_is_one_entry_though_its_text_differs_each_time(first: str, second: str, entries: int) -> None:
    timeline = Timeline(FakeClock())
    for outcome in (first, second):
        timeline.mark(Activity(ActivityKind.RUN, "app"), outcome=outcome)
    assert len(timeline.entries()) == entries
