"""Waits for other processes by polling, and reports the last reason when it takes too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nodelib.clock import Clock
from nodelib.errors import Temporary


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
    """Poll until `waits_for()` returns "". Raises Temporary with its last answer after `timeout` seconds."""
    deadline = clock.monotonic() + timeout
    while reason := await waits_for():
        if clock.monotonic() > deadline:
            raise Temporary(f"{reason} (after {timeout:g} s)", obj=obj, step=step, action=action)
        await clock.sleep(pause)
