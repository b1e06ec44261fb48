"""The collector rests while a daemon starts, and no longer."""

from __future__ import annotations

import asyncio
import gc

from nodelib.daemons import memory
from tests.fakes.clock import FakeClock, settle


async def test_the_collector_rests_until_the_start_is_over() -> None:
    clock = FakeClock()
    try:
        gc.set_threshold(100_000)
        memory.rest_collector()
        keeper = asyncio.create_task(memory.keep_trimmed(clock))
        await clock.advance(4)
        assert not gc.isenabled()
        imported = gc.get_freeze_count()
        started: list[list[int]] = [[] for _ in range(100)]
        assert imported > 0, "the imports' objects are not looked at when the start is over, which would take 50 ms"
        await clock.advance(2)
        await settle()
        assert gc.isenabled() and gc.get_freeze_count() >= imported + len(started) and gc.get_threshold()[0] == 700
        keeper.cancel()
    finally:
        gc.enable()
        gc.unfreeze()
