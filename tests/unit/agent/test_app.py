"""The agent's process before it touches the machine."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from agent.app import run
from agent.config.parse import parse
from agent.node.edge.lock_file import LockFile
from nodelib.clock import SystemClock
from nodelib.daemons import memory
from nodelib.tasks import cancel_and_wait


async def test_the_garbage_collector_runs_while_the_start_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its lock, or for a bootstrap's approval: both may take hours."""
    monkeypatch.setattr("nodelib.daemons.memory._START", 0.01)
    lock = LockFile(str(tmp_path / "kubelet.lock"))
    await lock.acquire(SystemClock())
    memory.rest_collector()
    argv = ["--kubeconfig", str(tmp_path / "none"), "--lock-file", str(tmp_path / "kubelet.lock")]
    agent = asyncio.create_task(run(parse(argv)))
    try:
        async with asyncio.timeout(30):
            while not gc.isenabled() and not agent.done():
                await asyncio.sleep(0.01)
        assert not agent.done(), agent.exception()
        assert gc.isenabled()
    finally:
        await cancel_and_wait(agent)
        await lock.close()
        gc.enable()
        gc.unfreeze()
