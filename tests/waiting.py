"""Waiting for what other tasks, threads or the kernel do: until it is so, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.fakes.clock import FakeClock


async def until(
    condition: Callable[[], Any], seconds: float = 20, *, clock: FakeClock | None = None, advance: float = 0.5
) -> Any:
    """The first true value of condition(), which may be awaitable; `clock` moves on by `advance` at each look."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"the condition did not come true in {seconds:g} s"
        if clock is not None:
            await clock.advance(advance)
        await asyncio.sleep(0.005)


def until_sync(condition: Callable[[], Any], seconds: float = 20, what: str = "the condition") -> Any:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found
