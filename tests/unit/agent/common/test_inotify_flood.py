"""A directory in which files are made, written and removed as fast as can be."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from agent.common.edge.inotify import Inotify


async def test_events_are_told_together(tmp_path: Path) -> None:
    """250 who follow the logs of a pod were told of each event: turns of the event loop of more than a second."""
    inotify = Inotify("test")
    watches = [inotify.watch(str(tmp_path)) for _ in range(250)]
    keeper = inotify.watch(str(tmp_path), keeps_names=True)
    try:
        for number in range(1000):
            (tmp_path / f"{number:05}").touch()
        for number in range(1000):
            (tmp_path / f"{number:05}").unlink()
        began = time.process_time()
        assert await keeper.wait(5)
        names = set(keeper.take_deleted())
        while len(names) < 1000:
            await keeper.wait(0.2)
            names |= keeper.take_deleted()
        assert time.process_time() - began < 0.15
        assert all(watch.take_deleted() == frozenset() for watch in watches), "nobody asks for these names"
        assert await watches[0].wait(1)
    finally:
        inotify.close()


async def test_names_are_told_to_who_asks_for_them(tmp_path: Path) -> None:
    inotify = Inotify("test")
    keeper = inotify.watch(str(tmp_path), keeps_names=True)
    try:
        (tmp_path / "a").touch()
        (tmp_path / "a").unlink()
        async with asyncio.timeout(5):
            while keeper.take_deleted() != {"a"}:
                await keeper.wait(0.2)
    finally:
        inotify.close()
