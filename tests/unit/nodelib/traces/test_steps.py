"""Traces of work that many changes share: what is kept, what a part belongs to, and that nothing is made when off."""

from __future__ import annotations

import asyncio

import pytest

from nodelib.errors import Temporary
from nodelib.traces.model import Span, SpanContext, sampled_parent
from nodelib.traces.sampling import ALL
from nodelib.traces.steps import LEFT_OUT, MOST, NOT_TRACED, OpenSpan, Tracer, step
from tests.fakes.clock import FakeClock

PARENT = SpanContext(b"t" * 16, b"s" * 8)


class World:
    def __init__(self, per_million: int = ALL) -> None:
        self.clock, self.spans = FakeClock(), list[Span]()
        self.tracer = Tracer(self.spans.append, per_million, self.clock)

    def named(self, name: str) -> Span:
        (found,) = (one for one in self.spans if one.name == name)
        return found


def test_without_a_trace_a_step_makes_nothing() -> None:
    assert step("plan") is step("write") is NOT_TRACED
    with step("plan") as span:
        assert span is None


async def test_steps_are_parts_of_what_their_task_works_for() -> None:
    world = World()

    async def part() -> None:
        with step("plan"):
            await world.clock.sleep(2)

    with world.tracer.begin("sync"):
        with step("write"):
            parts = asyncio.gather(part(), part())
            await world.clock.advance(3)
            await parts
        assert world.spans == []  # they leave with the first one
    assert step("later") is NOT_TRACED
    root, write = world.named("sync"), world.named("write")
    plans = [one for one in world.spans if one.name == "plan"]
    assert (root.parent, write.parent) == (b"", root.context.span)
    assert [one.parent for one in plans] == [write.context.span] * 2
    assert {one.context.trace for one in world.spans} == {root.context.trace}
    assert len({one.context.span for one in world.spans}) == 4
    assert (root.seconds, write.seconds, plans[0].seconds) == (3, 3, 2)


async def test_a_trace_begins_when_its_first_change_came() -> None:
    world = World()
    since = world.tracer.moment()
    await world.clock.advance(3)
    with world.tracer.begin("sync", since):
        await world.clock.advance(1)
        world.clock.step(-3600)  # somebody sets the wall clock
    assert (world.named("sync").begin, world.named("sync").seconds) == (since[0], 4)


def test_what_raises_is_the_error_of_each_span_around_it_and_bounded() -> None:
    world = World()
    with pytest.raises(Temporary), world.tracer.begin("sync"), step("write"):
        raise Temporary("\x1b[2Jno " + "x" * 100_000, obj="nat", step="commit")
    for name in ("sync", "write"):
        error = world.named(name).error
        assert error.startswith("nat: ") or "no x" in error
        assert len(error.encode()) <= 1024 and "\x1b" not in error


def test_what_is_dropped_is_not_told_unless_it_failed() -> None:
    world = World()
    with world.tracer.begin("sync") as span, step("plan"):
        assert span is not None
        span.drop()
    assert world.spans == []
    with pytest.raises(ValueError), world.tracer.begin("sync") as span:
        assert span is not None
        span.drop()
        raise ValueError("no")
    assert [one.error for one in world.spans] == ["no"]


def test_a_trace_has_a_bound() -> None:
    world = World()
    with world.tracer.begin("sync"):
        for _ in range(MOST + 3):
            with step("write"):
                pass
    assert len(world.spans) == MOST + 1
    assert world.named("sync").attributes == {LEFT_OUT: 3}


async def test_a_task_that_outlives_its_trace_adds_nothing() -> None:
    world, go = World(), asyncio.Event()

    async def late() -> None:
        await go.wait()
        with step("late"):
            pass

    with world.tracer.begin("sync"):
        task = asyncio.create_task(late())
    go.set()
    await task
    assert [one.name for one in world.spans] == ["sync"]


def test_so_many_of_a_million_are_kept() -> None:
    world = World(250_000)
    for _ in range(2000):
        with world.tracer.begin("sync"), step("plan"):
            pass
    roots = [one for one in world.spans if one.name == "sync"]
    assert 380 < len(roots) < 620  # six standard deviations around 500
    assert len(world.spans) == 2 * len(roots)
    assert World(0).tracer.begin("sync") is NOT_TRACED


def test_a_part_of_another_program_s_trace_is_kept_whatever_the_rate() -> None:
    world = World(1)
    made = world.tracer.within(PARENT, "wait")
    assert isinstance(made, OpenSpan)
    with made:
        pass
    assert (world.named("wait").context.trace, world.named("wait").parent) == (PARENT.trace, PARENT.span)


def test_a_parent_is_read_back() -> None:
    assert sampled_parent(PARENT.traceparent) == PARENT


@pytest.mark.parametrize(
    "text",
    [
        None, 7, "", "00", PARENT.traceparent[:-1], PARENT.traceparent + "\n",
        PARENT.traceparent.replace("00-", "01-", 1),
        PARENT.traceparent[:-2] + "00", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01",
        f"00-{'1' * 31}٣-{'1' * 16}-01", "00-" + "1" * 1_000_000,
    ],
)  # fmt: skip
def test_what_names_no_sampled_span_is_no_parent(text: object) -> None:
    assert sampled_parent(text) is None
