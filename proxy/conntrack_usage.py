"""Warns when the connection tracking table fills: the kernel then drops new connections, and nothing else says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from nodelib.clock import Clock

log = logging.getLogger(__name__)

PERIOD = 5.0  # seconds
COUNT, MAXIMUM = "net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max"
_OK, _NEARLY_FULL, _FULL = 0.8, 0.9, 0.99  # shares of the maximum
_ADVICE = (
    "raise net.netfilter.nf_conntrack_max on the host (conntrack.min and maxPerCore of the configuration), "
    "or find out who opens so many (conntrack -L)"
)


class Usage(Enum):
    """The value is what the log says."""

    OK = "there is room again"
    NEARLY_FULL = f"nearly full. New connections will be dropped: {_ADVICE}"
    FULL = f"full. New connections are dropped, established ones go on: {_ADVICE}"


def judge(count: int, maximum: int, last: Usage) -> Usage:
    """The usage now. Between two thresholds `last` stays, so that a table at a threshold is not logged repeatedly."""
    share = count / maximum if maximum > 0 else 0.0
    if share >= _FULL:
        return Usage.FULL
    if share >= _NEARLY_FULL:
        return last if last is Usage.FULL else Usage.NEARLY_FULL
    return last if share > _OK else Usage.OK


async def watch(read: Callable[[str], int | None], clock: Clock) -> None:
    """Until cancelled: log once when the table is nearly full, once when it is full, once when there is room again.

    `read` gives a sysctl's value by its name with slashes, None where the kernel has none.
    """
    last = Usage.OK
    while True:
        count, maximum = read(COUNT), read(MAXIMUM)
        if count is not None and maximum is not None:
            now = judge(count, maximum, last)
            if now != last:
                level = {Usage.OK: logging.INFO, Usage.NEARLY_FULL: logging.WARNING, Usage.FULL: logging.ERROR}[now]
                log.log(level, "connection tracking: %d of %d entries: %s", count, maximum, now.value)
            last = now
        await clock.sleep(PERIOD)
