from __future__ import annotations

import asyncio

import pytest

from proxy import fullness
from proxy.plan.fullness import Fullness, judge
from tests.fakes.clock import FakeClock
from tests.waiting import until

W, N, F = Fullness.WELL, Fullness.NEARLY, Fullness.FULL


@pytest.mark.parametrize(
    ("count", "last", "now"),
    [(0, W, W), (899, W, W), (900, W, N), (990, W, F), (990, N, F), (950, F, F), (850, F, F), (850, N, N), (800, F, W)],
)
def test_thresholds(count: int, last: Fullness, now: Fullness) -> None:
    assert judge(count, 1000, last) is now


async def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    counts = {fullness.COUNT: 999, fullness.MAXIMUM: 1000}
    clock = FakeClock()
    task = asyncio.create_task(fullness.watch(counts.get, clock))
    await until(lambda: len(caplog.messages) == 1, clock=clock, advance=5)
    await until(lambda: clock.monotonic() > 50, clock=clock, advance=5)
    counts[fullness.COUNT] = 1
    await until(lambda: len(caplog.messages) == 2, clock=clock, advance=5)
    task.cancel()
    assert caplog.messages[0].startswith("connection tracking: 999 of 1000 entries: full. New connections are dropped")
