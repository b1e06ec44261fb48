"""Is the table of connection tracking full? Then new connections are dropped, and nothing else says why."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nodelib.clock import Clock
from proxy.plan.fullness import Fullness, judge

log = logging.getLogger(__name__)

PERIOD = 5.0  # seconds
COUNT, MAXIMUM = "net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max"


async def watch(read: Callable[[str], int | None], clock: Clock) -> None:
    """Until cancelled: one line when it fills, one when it is full, one when it is well again."""
    last = Fullness.WELL
    while True:
        count, maximum = read(COUNT), read(MAXIMUM)
        if count is not None and maximum is not None:
            now = judge(count, maximum, last)
            if now != last:
                told = log.info if now is Fullness.WELL else log.error if now is Fullness.FULL else log.warning
                told("connection tracking: %d of %d entries: %s", count, maximum, now.value)
            last = now
        await clock.sleep(PERIOD)
