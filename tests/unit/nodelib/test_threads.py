"""Blocking work in a thread of its own blocks nobody else; long work leaves the loop, short work stays."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from nodelib.threads import alone, in_thread_if


async def test_what_hangs_holds_up_nobody_else() -> None:
    """More of it than the loop's own pool has threads (cores + 4, 32 at most)."""
    let_go, started = threading.Event(), threading.Semaphore(0)

    def hang() -> int:
        started.release()
        let_go.wait(60)
        return 1

    hung = [asyncio.create_task(alone(hang)) for _ in range(min(32, (os.cpu_count() or 1) + 4) + 8)]
    try:
        await asyncio.wait_for(alone(lambda: [started.acquire(timeout=30) for _ in hung]), 60)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "shared"), 30) == "shared"
        assert await asyncio.wait_for(alone(lambda: "own"), 30) == "own"
        hung[0].cancel()
        await asyncio.gather(hung[0], return_exceptions=True)
    finally:
        let_go.set()
    assert await asyncio.gather(*hung[1:]) == [1] * (len(hung) - 1)


async def test_errors_come_back_as_they_are() -> None:
    def fail(path: str, *, mode: int) -> None:
        raise FileNotFoundError(2, f"{mode}", path)

    with pytest.raises(FileNotFoundError, match="7"):
        await alone(fail, "/x", mode=7)


@pytest.mark.parametrize("long", [False, True])
async def test_only_long_work_leaves_the_thread_of_the_loop(long: bool) -> None:
    def where(name: str, *, number: int) -> tuple[str, int, bool]:
        return name, number, threading.current_thread() is threading.main_thread()

    assert await in_thread_if(long, where, "a", number=1) == ("a", 1, not long)


@pytest.mark.parametrize("long", [False, True])
async def test_errors_are_the_same_in_either_place(long: bool) -> None:
    def fail() -> None:
        raise FileNotFoundError(2, "not there", "/x")

    with pytest.raises(FileNotFoundError, match="not there"):
        await in_thread_if(long, fail)
