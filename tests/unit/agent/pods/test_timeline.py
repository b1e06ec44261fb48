import asyncio

import pytest

from agent.pods.work.timeline import Timeline
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock


async def test_a_step_has_its_time_its_outcome_and_its_parts() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    start = clock.now()
    with timeline.step("start app"):
        await clock.advance(1)
        with timeline.step("run app", of="start app"):
            assert [one.step for one in timeline.under_way()] == ["start app", "run app"]
            await clock.advance(2)
    outer, inner = timeline.entries()
    assert (outer.step, outer.at, outer.seconds, outer.outcome) == ("start app", start, 3, "ok")
    assert (inner.step, inner.of, inner.at, inner.seconds) == ("run app", "start app", start + 1, 2)
    assert timeline.under_way() == ()


async def test_the_same_failure_again_and_again_is_one_entry_with_a_count() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    for port in (4001, 4002, 4003):
        with pytest.raises(Temporary), timeline.step("pull"):
            raise Temporary(f"dial [::1]:{port}->[::1]:53: refused")
        timeline.mark("other")
        await clock.advance(10)
    pull, other = timeline.entries()
    assert (pull.times, pull.last_at - pull.at, other.times) == (3, 20, 3)


async def test_another_outcome_is_another_entry() -> None:
    timeline = Timeline(FakeClock())
    timeline.mark("ended app", outcome="exit code 1")
    timeline.mark("ended app", outcome="exit code 2")
    timeline.mark("ended app", outcome="exit code 1")
    assert [one.outcome for one in timeline.entries()] == ["exit code 1", "exit code 2", "exit code 1"]


async def test_a_cancelled_step_says_so() -> None:
    timeline = Timeline(FakeClock())
    with pytest.raises(asyncio.CancelledError), timeline.step("stop app", note="deleted"):
        raise asyncio.CancelledError
    (only,) = timeline.entries()
    assert (only.outcome, only.note) == ("interrupted", "deleted")


async def test_the_record_is_bounded() -> None:
    timeline = Timeline(FakeClock())
    for number in range(200):
        timeline.mark(f"step {number}")
    entries = timeline.entries()
    assert len(entries) == 64
    assert entries[-1].step == "step 199"
