"""A node whose agent talks to its containerd through tests/cri_proxy.py for a while, and directly afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from controlplane.supervisor.edge import units
from tests.cluster.world import World
from tests.cri_proxy import CriProxy

_ENDPOINT = "--container-runtime-endpoint="


@contextlib.asynccontextmanager
async def behind_proxy(world: World, node: str, seed: int = 0) -> AsyncIterator[CriProxy]:
    """The node's agent is started again for the block, with the proxy as its runtime, and once more after it."""
    pid = units.supervisor_pid(world.cluster.unit_dir(node))  # in the node's mounts, and it outlives containerd
    socket = f"/run/nwt-{uuid.uuid4().hex[:6]}.sock"
    proxy = CriProxy(f"/proc/{pid}/root/run/containerd/containerd.sock", seed)
    await proxy.serve(f"/proc/{pid}/root{socket}")

    def use_proxy(agent: dict[str, Any]) -> None:
        agent["argv"] = [f"{_ENDPOINT}unix://{socket}" if one.startswith(_ENDPOINT) else one for one in agent["argv"]]

    try:
        async with agent_changed(world, node, use_proxy):
            try:
                yield proxy
            finally:
                proxy.rate = 0.0
    finally:
        await proxy.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"/proc/{pid}/root{socket}")


@contextlib.asynccontextmanager
async def agent_changed(world: World, node: str, change: Callable[[dict[str, Any]], None]) -> AsyncIterator[None]:
    """The node's agent is started again for the block, as `change` makes its entry in spec.json, and once more after
    it."""
    file = Path(world.cluster.unit_dir(node), "spec.json")
    before = file.read_text()
    spec = json.loads(before)
    change(next(one for one in spec["programs"] if one["name"] == "agent"))
    try:
        await _agent_with(world, node, file, json.dumps(spec))
        yield
    finally:
        await _agent_with(world, node, file, before)


async def _agent_with(world: World, node: str, file: Path, spec: str) -> None:
    old = await world.pid_once_running(node, "agent")
    file.write_text(spec)
    os.kill(units.supervisor_pid(str(file.parent)), signal.SIGHUP)
    await world.pid_once_running(node, "agent", other_than=old)
    await world.agent_well(node)
