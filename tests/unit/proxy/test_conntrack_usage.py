"""How full the connection tracking table is: its thresholds, and one log line for each change."""

from __future__ import annotations

import asyncio

import pytest

from proxy import conntrack_usage
from proxy.conntrack_usage import Usage, judge
from tests.fakes.clock import FakeClock
from tests.waiting import until

OK, NEARLY, FULL = Usage.OK, Usage.NEARLY_FULL, Usage.FULL


@pytest.mark.parametrize(
    ("count", "last", "now"),
    [
        (0, OK, OK),
        (899, OK, OK),
        (900, OK, NEARLY),
        (990, OK, FULL),
        (990, NEARLY, FULL),
        (950, FULL, FULL),
        (850, FULL, FULL),
        (850, NEARLY, NEARLY),
        (800, FULL, OK),
    ],
)
def test_thresholds(count: int, last: Usage, now: Usage) -> None:
    assert judge(count, 1000, last) is now


async def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    counts = {conntrack_usage.COUNT: 999, conntrack_usage.MAXIMUM: 1000}
    clock = FakeClock()
    task = asyncio.create_task(conntrack_usage.watch(counts.get, clock))
    await until(lambda: len(caplog.messages) == 1, clock=clock, advance=5)
    await until(lambda: clock.monotonic() > 50, clock=clock, advance=5)
    counts[conntrack_usage.COUNT] = 1
    await until(lambda: len(caplog.messages) == 2, clock=clock, advance=5)
    task.cancel()
    assert caplog.messages[0].startswith("connection tracking: 999 of 1000 entries: full. New connections are dropped")
    assert caplog.messages[1] == "connection tracking: 1 of 1000 entries: there is room again"
