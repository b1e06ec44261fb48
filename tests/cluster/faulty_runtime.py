"""A node whose agent talks to its containerd through tests/cri_proxy.py for a while, and directly afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.supervisor.edge import units
from tests.cluster.world import World
from tests.cri_proxy import CriProxy

_ENDPOINT = "--container-runtime-endpoint="


@contextlib.asynccontextmanager
async def behind_proxy(world: World, node: str, seed: int = 0) -> AsyncIterator[CriProxy]:
    """The node's agent is started again for the block, with the proxy as its runtime, and once more after it."""
    pid = await world.pid_once_running(node, "containerd")
    socket = f"/run/nwt-{uuid.uuid4().hex[:6]}.sock"
    proxy = CriProxy(f"/proc/{pid}/root/run/containerd/containerd.sock", seed)
    await proxy.serve(f"/proc/{pid}/root{socket}")
    folder = Path(world.cluster.unit_dir(node))
    before = (folder / "spec.json").read_text()
    try:
        await _agent_with(world, node, folder, json.dumps(_to(json.loads(before), f"unix://{socket}")))
        yield proxy
    finally:
        proxy.rate = 0.0
        await _agent_with(world, node, folder, before)
        await proxy.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"/proc/{pid}/root{socket}")


def _to(spec: dict, endpoint: str) -> dict:  # type: ignore[type-arg]
    agent = next(one for one in spec["programs"] if one["name"] == "agent")
    agent["argv"] = [_ENDPOINT + endpoint if one.startswith(_ENDPOINT) else one for one in agent["argv"]]
    return spec


async def _agent_with(world: World, node: str, folder: Path, spec: str) -> None:
    old = await world.pid_once_running(node, "agent")
    (folder / "spec.json").write_text(spec)
    os.kill(units.supervisor_pid(str(folder)), signal.SIGHUP)
    await world.pid_once_running(node, "agent", other_than=old)
    await world.agent_well(node)
