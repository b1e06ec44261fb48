"""Asks for the next frame when there is news, and shows it; at most so often, however much happens."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cli.watching.changes import Frame
from nodelib.clock import Clock, at_most

_LEAST = 0.25  # seconds between two frames
_SHARE, _MOST = 4.0, 2.0  # a frame that took long is followed by a pause so many times as long, but at most 2 s
_TICK = 1.0  # seconds after which ages are shown anew


class Source(Protocol):
    """What is followed. `news` is set from outside when the next frame will differ."""

    news: asyncio.Event

    async def frame(self) -> Frame: ...

    def rest(self) -> float:
        """Seconds after which to look again at what tells nothing by itself."""
        ...


class Screen(Protocol):
    """Where frames are shown; neither call waits."""

    def show(self, frame: Frame) -> None: ...

    def tick(self) -> None:
        """Time has passed, and nothing else."""
        ...


async def follow(source: Source, screen: Screen, clock: Clock) -> None:
    """Until cancelled. Raises what the source or the screen raises, such as BrokenPipeError."""
    while True:
        source.news.clear()
        began = clock.monotonic()
        screen.show(await source.frame())
        took = clock.monotonic() - began
        await clock.sleep(max(_LEAST, min(_SHARE * took, _MOST)))
        await _news(source, screen, clock)


async def _news(source: Source, screen: Screen, clock: Clock) -> None:
    """Returns when there is some, or when it is time to look again."""
    until = clock.monotonic() + source.rest()
    while not source.news.is_set() and (left := until - clock.monotonic()) > 0:
        screen.tick()
        await at_most(clock, min(left, _TICK), source.news)
