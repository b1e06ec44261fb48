"""Locks by key."""

from __future__ import annotations

import asyncio
import gc

from nodelib.key_locks import KeyLocks


async def test_one_at_a_time_for_a_key_and_nobody_waits_for_another_key() -> None:
    locks, inside, most = KeyLocks[str](), list[str](), dict[str, int]()

    async def work(key: str) -> None:
        async with locks.of(key):
            gc.collect()  # a lock that somebody holds stays
            inside.append(key)
            most[key] = max(most.get(key, 0), inside.count(key))
            most["both"] = max(most.get("both", 0), len(set(inside)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside.remove(key)

    await asyncio.gather(*(work(key) for key in ("a", "b", "a", "b", "a")))
    assert most == {"a": 1, "b": 1, "both": 2}


async def test_a_lock_goes_with_the_last_task_that_uses_it() -> None:
    locks = KeyLocks[str]()
    async with locks.of("a"):
        assert list(locks._locks) == ["a"]
    gc.collect()
    assert list(locks._locks) == []
