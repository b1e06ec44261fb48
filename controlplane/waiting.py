"""Waits for other processes by polling, and reports the last reason when it takes too long.

A slow machine is not a broken one: as long as there is news, waiting goes on for some times as long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nodelib.clock import Clock
from nodelib.errors import Temporary

_LONGEST = 5  # timeouts, for what has something new to say again and again


async def until(
    waits_for: Callable[[], Awaitable[str]],
    clock: Clock,
    timeout: float,
    *,
    obj: str,
    step: str,
    action: str,
    pause: float = 0.1,
) -> None:
    """Poll until `waits_for()` returns "". Raises Temporary with its last answer.

    `timeout`: seconds without another answer than before; in all, it may take five times as long.
    """
    began = news = clock.monotonic()
    last = ""
    while reason := await waits_for():
        now = clock.monotonic()
        if reason != last:
            last, news = reason, now
        if now - news > timeout or now - began > _LONGEST * timeout:
            raise Temporary(f"{reason} (after {now - began:.0f} s)", obj=obj, step=step, action=action)
        await clock.sleep(pause)
