"""Work that is asked for without end."""

from __future__ import annotations

import asyncio

from agent.common.work.spaced import Spaced
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock, settle


async def test_it_is_done_at_once_then_less_and_less_often_and_never_forgotten() -> None:
    clock, done = FakeClock(), list[float]()
    spaced = Spaced(lambda: done.append(clock.monotonic()), clock)
    task = asyncio.create_task(spaced.run())
    try:
        began = clock.monotonic()
        for _ in range(400):  # ten times a second
            spaced.poke()
            await settle(3)
            await clock.advance(0.1)
        assert [at - began for at in done] == sorted(at - began for at in done)
        assert done[0] == began and 6 <= len(done) <= 8
        await clock.advance(30)
        before = len(done)
        spaced.poke()
        await settle(3)
        assert len(done) == before + 1
    finally:
        await cancel_and_wait(task)
