"""Many pods at once on one node, and one at a time: how long it takes, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from tests.builders.pods import AGNHOST, container, manifest
from tests.cluster.world import World, cpu_seconds, holds, is_ready, median, rss

# Alone: what it measures is for people to compare, and 60 pods at once take both cores from others.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

NODE = "node2"
_PODS = 60
_SLOW = 60.0  # seconds; one pod takes about one
_RESTING = 20.0  # seconds of watching the daemons at rest


async def test_sixty_pods_come_and_go_and_leave_nothing(world: World) -> None:
    before = await world.left(NODE)
    agent = world.pid(NODE, "agent")
    cpu = cpu_seconds(agent)
    await world.config_map("settings", a="1")
    names = [f"burst-{i:02}" for i in range(_PODS)]
    box = container(
        script="sleep 3600 & wait", volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in ("a", "b", "c")]
    )
    volumes = [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {"medium": "Memory"}},
        {"name": "c", "configMap": {"name": "settings"}},
    ]
    began = time.monotonic()
    await asyncio.gather(*(world.create(manifest(name, box, nodeName=NODE, volumes=volumes)) for name in names))

    async def all_ready() -> bool:
        pods = await world.pods()
        return len(pods) == _PODS and all(is_ready(one) for one in pods)

    await holds(all_ready, f"{_PODS} pods are Ready", 300)
    world.stats.append((f"{_PODS} pods at once, three volumes each, all Ready", f"{time.monotonic() - began:.1f} s"))
    used = (cpu_seconds(agent) - cpu) / _PODS
    world.stats.append(("agent's CPU for each of them", f"{used * 1000:.0f} ms"))
    pods = await world.pods()
    addresses = {one["status"]["podIP"] for one in pods}
    assert len(addresses) == _PODS
    assert all(one["restartCount"] == 0 for obj in pods for one in obj["status"]["containerStatuses"])
    there = await world.left(NODE)
    assert len(there.addresses - before.addresses) == _PODS
    assert len(there.veths - before.veths) == _PODS

    began = time.monotonic()
    await asyncio.gather(*(world.delete(name) for name in names))

    async def all_gone() -> bool:
        return not await world.pods()

    await holds(all_gone, f"{_PODS} pods are gone", 300)
    world.stats.append((f"{_PODS} pods deleted (grace 1 s), all gone", f"{time.monotonic() - began:.1f} s"))

    await world.nothing_beyond(NODE, before)
    assert world.pid(NODE, "agent") == agent


async def test_one_pod_at_a_time(world: World) -> None:
    """Create -> Ready and delete -> gone, as a watch sees them."""
    starts, ends = [], []
    pause = container(image=AGNHOST, args=["pause"])
    for turn in range(10):
        name = f"one-{turn}"
        seen = asyncio.ensure_future(world.ready(name))
        await asyncio.sleep(0.2)  # the watch is there
        began = time.monotonic()
        await world.create(manifest(name, pause, nodeName=NODE))
        await seen
        starts.append(time.monotonic() - began)
        gone = asyncio.ensure_future(world.until(name, lambda one: one.get("deleted"), "gone"))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await world.delete(name)
        await gone
        ends.append(time.monotonic() - began)
    for what, values in (("create -> Ready", starts), ("delete -> gone, grace 1 s", ends)):
        text = f"p50 {median(values):.3f} s, max {max(values):.3f} s"
        world.stats.append((f"one pod at a time, {what} (n={len(values)})", text))
        assert max(values) < _SLOW, f"{what}: {text}"


async def test_daemons_at_rest(world: World) -> None:
    """Memory, and CPU with only the demo running. The limits are generous: they catch a loop that spins."""
    pids = {program: world.pid(NODE, program) for program in ("agent", "proxy", "containerd")}
    before = {program: cpu_seconds(pid) for program, pid in pids.items()}
    await asyncio.sleep(_RESTING)
    for program, pid in pids.items():
        share = (cpu_seconds(pid) - before[program]) / _RESTING
        text = f"{rss(pid) / 1e6:.0f} MB RSS, {share:.1%} of a core"
        world.stats.append((f"{program} at rest with the demo ({_RESTING:g} s)", text))
        assert share < 0.5
        assert rss(pid) < 500e6
