"""until() ends when there is no more reason to wait; after the time limit its error gives the last reason."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.waiting import until
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock


async def _wait(clock: FakeClock, reasons: list[str]) -> None:
    async def waits_for() -> str:
        return reasons.pop(0) if len(reasons) > 1 else reasons[0]

    task = asyncio.create_task(until(waits_for, clock, 5, obj="nodes", step="wait", action="Look at the log."))
    await clock.advance(10)
    await task


async def test_it_ends_with_the_last_reason() -> None:
    reasons = ["n1", "n2", ""]
    await _wait(FakeClock(), reasons)
    assert reasons == [""]


async def test_too_long_says_what_was_missing() -> None:
    with pytest.raises(Temporary) as caught:
        await _wait(FakeClock(), ["no podCIDR", "no answer"])
    assert str(caught.value) == "nodes: wait: no answer (after 5 s). Look at the log."
