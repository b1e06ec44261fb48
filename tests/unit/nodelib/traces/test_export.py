"""The queue before a collector: batches, its bound, what becomes of spans that no collector takes."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from nodelib.errors import Permanent, Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from nodelib.traces.export import BATCH, DELAY, MOST, Exporter
from nodelib.traces.model import Span, SpanContext
from tests.fakes.clock import FakeClock, settle


class FakeSender:
    """Takes spans, or raises `error`; `hangs`: never answers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.error: Exception | None = None
        self.rejects = 0
        self.hangs = self.closed = False
        self.tries = 0

    async def send(self, parts: Iterable[Json]) -> int:
        self.tries += 1
        requests = [part["resource_spans"][0]["scope_spans"][0]["spans"] for part in parts]
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        assert all(len(spans) <= 64 for spans in requests)
        spans = [span for spans in requests for span in spans]
        self.sizes.append(len(spans))
        self.names += [one["name"] for one in spans]
        return self.rejects

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, delay: float) -> None:
        self.clock, self.sender, self.connected = FakeClock(), FakeSender(), 0
        self.exported, self.dropped = 0, dict[str, int]()
        counts = (self._export, self._drop)
        self.exporter = Exporter(self._connect, {"service.name": "x"}, self.clock, *counts, delay)

    def _connect(self) -> FakeSender:
        self.connected += 1
        return self.sender

    def _export(self, count: int) -> None:
        self.exported += count

    def _drop(self, reason: str, count: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def add(self, count: int) -> None:
        for number in range(count):
            self.exporter.add(Span(SpanContext(b"t" * 16, b"s" * 8), f"span-{number}", 1.0, 1.0))


@asynccontextmanager
async def running(delay: float = DELAY) -> AsyncIterator[World]:
    world = World(delay)
    task = asyncio.create_task(world.exporter.run())
    await settle()
    yield world
    await cancel_and_wait(task)


async def test_spans_wait_ten_seconds_for_others_and_leave_in_their_order() -> None:
    async with running() as world:
        world.add(3)
        await world.clock.advance(9.9)
        assert (world.sender.sizes, world.connected) == ([], 0)
        await world.clock.advance(0.2)
        assert world.sender.names == ["span-0", "span-1", "span-2"]
        assert (world.exported, world.dropped, world.exporter.waiting) == (3, {}, 0)


async def test_who_asks_for_it_has_spans_leave_sooner() -> None:
    async with running(delay=0.5) as world:
        world.add(1)
        await world.clock.advance(0.4)
        assert world.sender.sizes == []
        await world.clock.advance(0.2)
        assert world.sender.sizes == [1]


async def test_a_full_batch_leaves_at_once() -> None:
    async with running() as world:
        world.add(2 * BATCH + 1)
        await settle()
        assert world.sender.sizes == [BATCH, BATCH]
        await world.clock.advance(10.1)
        assert world.sender.sizes == [BATCH, BATCH, 1]


async def test_nobody_waits_for_a_collector_that_hangs_and_the_queue_is_bounded() -> None:
    async with running() as world:
        world.sender.hangs = True
        world.add(BATCH)
        await settle()
        world.add(MOST + 100)
        assert world.exporter.waiting == MOST + BATCH
        assert world.dropped == {"queue_full": 100}


async def test_a_dead_collector_is_tried_again_and_gets_what_waits() -> None:
    async with running() as world:
        world.sender.error = Temporary("connection refused")
        world.add(2)
        await world.clock.advance(13)
        assert world.sender.tries >= 2 and not world.dropped
        world.sender.error = None
        await world.clock.advance(60)
        assert (world.exported, world.dropped) == (2, {})


async def test_a_batch_is_dropped_after_five_tries_and_the_next_one_gets_its_own() -> None:
    async with running() as world:
        world.sender.error = Temporary("connection refused")
        world.add(2)
        await world.clock.advance(300)
        assert (world.sender.tries, world.dropped, world.exporter.waiting) == (5, {"not_sent": 2}, 0)
        world.sender.error = None
        world.add(1)
        await world.clock.advance(11)
        assert world.exported == 1


@pytest.mark.parametrize("error", [Permanent("no such service"), RuntimeError("a bug")], ids=["refused", "unexpected"])
async def test_what_a_collector_refuses_for_good_is_not_sent_again(error: Exception) -> None:
    async with running() as world:
        world.sender.error = error
        world.add(2)
        await world.clock.advance(60)
        assert (world.sender.tries, world.dropped) == (1, {"rejected": 2})


@pytest.mark.parametrize(("said", "exported", "dropped"), [(1, 2, 1), (99, 0, 3), (0, 3, 0)])
async def test_rejected_spans_are_counted_but_never_more_than_were_sent(said: int, exported: int, dropped: int) -> None:
    async with running() as world:
        world.sender.rejects = said
        world.add(3)
        await world.clock.advance(11)
        assert (world.exported, world.dropped.get("rejected", 0)) == (exported, dropped)


async def test_the_end_sends_what_waits_also_what_was_under_way() -> None:
    async with running() as world:
        world.sender.hangs = True
        world.add(BATCH)
        await settle()
    world.sender.hangs = False
    world.add(1)
    await world.exporter.close(5)
    assert (world.sender.sizes, world.sender.closed, world.dropped) == ([BATCH, 1], True, {})


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "refuses"])
async def test_the_end_has_a_limit_and_counts_what_is_lost(hangs: bool) -> None:
    world = World(DELAY)
    world.sender.hangs, world.sender.error = hangs, None if hangs else Temporary("refused")
    world.add(BATCH + 5)
    async with asyncio.timeout(5):
        await world.exporter.close(0.05)
    assert (world.dropped, world.sender.tries, world.sender.closed) == ({"shutdown": BATCH + 5}, 1, True)


async def test_without_a_span_there_is_no_connection() -> None:
    async with running() as world:
        await world.clock.advance(600)
    await world.exporter.close(1)
    assert world.connected == 0


async def test_a_span_may_be_made_when_it_is_sent_and_one_that_cannot_be_made_stops_nothing() -> None:
    async with running() as world:
        made: list[str] = []

        def make() -> Span:
            made.append("span")
            return Span(SpanContext(b"t" * 16, b"s" * 8), "later", 1.0, 1.0)

        world.exporter.add_later(make)
        await world.clock.advance(9.9)
        assert made == []
        await world.clock.advance(0.2)
        assert (made, world.sender.names) == (["span"], ["later"])

        world.exporter.add_later(lambda: Span(*()))  # type: ignore[call-arg]
        await world.clock.advance(11)
        world.exporter.add_later(make)
        await world.clock.advance(11)
        assert (world.sender.names, world.dropped) == (["later", "later"], {"rejected": 1})
