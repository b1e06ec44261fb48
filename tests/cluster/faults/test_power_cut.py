"""All processes of a durable cluster are killed at once; nothing acknowledged is lost, and `up` brings it back.

A real power cut also loses what the kernel had not written to the disk yet. A test cannot take that away from one
cluster only: --durable therefore means fsync, and tests/unit shows that checkpoints use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import uuid
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.builders.pods import manifest
from tests.cluster.command_line import STATE, cli
from tests.cluster.faults.promises import SEED
from tests.cluster.world import World

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]
_CUTS = int(os.environ.get("NODEWRIGHT_SOAK", "1"))


async def test_a_power_cut_loses_nothing_that_was_acknowledged() -> None:
    name, dice = f"t{uuid.uuid4().hex[:4]}", random.Random(SEED)
    words = ("up", "--name", name, "--nodes", "1", "--durable", "--no-uplink", "--no-demo", "--plain")
    cli(*words, timeout=1800)
    try:
        cluster = Cluster.from_json(json.loads((STATE / name / "cluster.json").read_text()), str(STATE))
        node = cluster.nodes[0].name
        async with _world(cluster) as world:
            await world.run(manifest("stays", nodeName=node, restartPolicy="Always"))
        kept: list[str] = []
        for _ in range(_CUTS):
            async with _world(cluster) as world:
                writing = asyncio.create_task(_write(world, kept))
                await asyncio.sleep(dice.uniform(0.5, 3))
                _kill_all(name)
                writing.cancel()
                with contextlib.suppress(asyncio.CancelledError, NodewrightError):
                    await writing
            cli(*words, timeout=600)
            async with _world(cluster) as world:
                there = {one["metadata"]["name"] for one in (await world.api.get(world.path("configmaps")))["items"]}
                assert set(kept) <= there, sorted(set(kept) - there)
                await world.ready("stays")
                await world.run(manifest("new", nodeName=node))
                await world.delete("new")
                await world.gone("new")
        assert kept
    finally:
        cli("down", "--name", name, "--plain")


@contextlib.asynccontextmanager
async def _world(cluster: Cluster):  # type: ignore[no-untyped-def]  # an async generator of one World
    api = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests")
    try:
        yield World(cluster, api, "default")
    finally:
        await api.close()


async def _write(world: World, acknowledged: list[str]) -> None:
    """ConfigMaps, one after the other, and sometimes a pod; each name once the API server has said yes."""
    while True:
        name = f"kept-{uuid.uuid4().hex[:8]}"
        await world.config_map(name, value="x" * 1000)
        acknowledged.append(name)
        with contextlib.suppress(NodewrightError):
            await world.create(manifest(f"pod-{name}", nodeName=world.cluster.nodes[0].name))
        await asyncio.sleep(0.02)


def _kill_all(name: str) -> None:
    """SIGKILL every process in the cluster's cgroups, until there is none."""
    while pids := [pid for pid in os.listdir("/proc") if pid.isdigit() and f"/nodewright/{name}" in _cgroups(pid)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _cgroups(pid: str) -> str:
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
        dead = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return ""
    return "" if dead else text
