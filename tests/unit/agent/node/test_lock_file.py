"""The kubelet's lock file, on the real file system."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path

import pytest

from agent.node.edge.lock_file import LockFile
from nodelib.clock import SystemClock
from nodelib.errors import Permanent


async def test_one_works_and_the_next_waits_for_its_end(tmp_path: Path) -> None:
    path = str(tmp_path / "kubelet.lock")
    first, second = LockFile(path), LockFile(path)
    assert await first.acquire(SystemClock())
    waiting = asyncio.create_task(second.acquire(SystemClock()))
    done, _ = await asyncio.wait({waiting}, timeout=0.5)
    assert not done, "the lock is held"
    await first.close()
    assert await asyncio.wait_for(waiting, 30)
    await second.close()


async def test_a_fork_that_outlives_the_agent_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "kubelet.lock")
    first, second = LockFile(path), LockFile(path)
    await first.acquire(SystemClock())
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
    child.start()
    try:
        await first.close()
        assert await asyncio.wait_for(second.acquire(SystemClock()), 30)
    finally:
        child.kill()
        child.join()
    await second.close()


async def test_who_opens_the_file_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.lock"
    lock = LockFile(str(file))
    await lock.acquire(SystemClock())
    asked = asyncio.create_task(lock.wait_for_contention())
    done, _ = await asyncio.wait({asked}, timeout=0.2)
    assert not done, "its own opening is none"
    file.open().close()
    await asyncio.wait_for(asked, 30)
    await lock.close()


async def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"no-folder.*--lock-file"):
        await LockFile(str(tmp_path / "no-folder" / "lock")).acquire(SystemClock())
