"""until() ends when there is no more reason to wait; after the time limit its error gives the last reason."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.waiting import until
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock


async def _wait(clock: FakeClock, reasons: list[str], seconds: float = 10) -> None:
    async def waits_for() -> str:
        return reasons.pop(0) if len(reasons) > 1 else reasons[0]

    task = asyncio.create_task(until(waits_for, clock, 5, obj="nodes", step="wait", action="Look at the log."))
    await clock.advance(seconds)
    await task


async def test_it_ends_with_the_last_reason() -> None:
    reasons = ["n1", "n2", ""]
    await _wait(FakeClock(), reasons)
    assert reasons == [""]


async def test_too_long_says_what_was_missing() -> None:
    with pytest.raises(Temporary) as caught:
        await _wait(FakeClock(), ["no podCIDR", "no answer"])
    assert str(caught.value) == "nodes: wait: no answer (after 5 s). Look at the log."


async def test_as_long_as_there_is_news_a_slow_machine_is_waited_for() -> None:
    reasons = [f"{left} hooks of the API server" for left in range(100, 0, -1)] + [""]
    await _wait(FakeClock(), reasons, 12)
    assert reasons == [""]


async def test_news_without_an_end_are_not_waited_for_for_ever() -> None:
    with pytest.raises(Temporary, match=r"\(after 25 s\)"):
        await _wait(FakeClock(), [f"{number} s" for number in range(1000)], 30)
