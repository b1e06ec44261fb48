"""Volumes on a file system that does not answer: their pods wait, other pods do not, and the agent can stop."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from pathlib import Path

import pytest

from tests.builders.pods import manifest, sleeper
from tests.cluster.plugin_processes import start
from tests.cluster.world import World, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="stands for a dead server: this kernel has no FUSE"),
]

NODE = "node1"
_MANY = min(32, (os.cpu_count() or 1) + 4) + 4  # more than asyncio's own threads, which all of an agent's work shares


async def test_a_mount_that_hangs_delays_no_other_pod(world: World) -> None:
    path = f"/run/nwt-stuck-{uuid.uuid4().hex[:6]}"
    names = [f"stuck-{number}" for number in range(_MANY)]
    box = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    volumes = [{"name": "data", "hostPath": {"path": f"{path}/inside", "type": "Directory"}}]
    said, before = len(world.agent_log(NODE)), await threads(world)
    server = await start(world, NODE, Path("/"), sys.executable, "-m", "tests.fakes.stuck_mount", path, says=b"serving")
    try:
        await asyncio.gather(*(world.create(manifest(name, box, nodeName=NODE, volumes=volumes)) for name in names))

        async def all_wait() -> bool:
            return await threads(world) >= before + _MANY

        await holds(all_wait, "every one of them waits for the file system")
        took = await world.another(f"{_MANY} pods wait for a mount", NODE)
    finally:
        await server.stop()
    for name in names:
        await world.delete(name)
    for name in names:
        await world.gone(name)
    assert "Traceback" not in world.agent_log(NODE)[said:]
    assert took < 30


async def threads(world: World) -> int:
    """How many the agent has."""
    return len(os.listdir(f"/proc/{await world.pid_once_running(NODE, 'agent')}/task"))
