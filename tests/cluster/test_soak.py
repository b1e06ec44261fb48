"""Long runs by hand: `NODEWRIGHT_SOAK=100 ./nodewright test tests/cluster/test_soak.py` kills the proxy, and the agent.

Their measurements are reported; what must never happen fails the test.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from typing import Any

import pytest

from tests.builders.pods import manifest, sleeper, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.test_service import APP, answers_from, client
from tests.cluster.world import Object, World, holds, load
from tests.netns.proxy_world import PEER

KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not KILLS, reason="a long run: NODEWRIGHT_SOAK says how many kills"),
]
_THREADS, _PAUSE = 30, 0.13  # 200 requests a second, answers in 20 ms


def deployment(**container: Any) -> Object:
    template = {
        "metadata": {"labels": APP},
        "spec": {"containers": [web(**container)], "terminationGracePeriodSeconds": 5},
    }
    spec = {
        "replicas": 4,
        "selector": {"matchLabels": APP},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


async def rolled_out(world: World, path: str) -> None:
    async def done() -> bool:
        found = await world.api.get(path)
        status = found.get("status") or {}
        same = status.get("observedGeneration") == found["metadata"]["generation"]
        return same and status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == 4

    await holds(done, "the Deployment is rolled out", 180)


@pytest.mark.parametrize("sleep", [2, 0], ids=["with preStop sleep", "without"])
async def test_a_rolling_update_under_load(world: World, sleep: int) -> None:
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    more = {"lifecycle": {"preStop": {"sleep": {"seconds": sleep}}}} if sleep else {}
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    await world.api.post(path, deployment(**more))
    await rolled_out(world, f"{path}/web")
    urls = [f"http://{made['spec']['clusterIP']}/hostname"] * _THREADS
    with load(urls, net=world.cluster.namespace("node1", "net"), pause=_PAUSE) as asked:
        for turn in range(3):
            note = {"spec": {"template": {"metadata": {"annotations": {"turn": str(turn)}}}}}
            await world.api.patch(f"{path}/web", note, "strategic")
            await rolled_out(world, f"{path}/web")
        result = asked.stop()
    text = f"{result['asked']} asked, {len(result['failed'])} failed, slowest {result['slowest']:.2f} s"
    world.stats.append((f"three rolling updates, preStop sleep {sleep} s", f"{text} {result['failed'][:2]}"))
    assert not sleep or result["failed"] == []


async def pods_come_and_go(world: World, stop: asyncio.Event) -> int:
    """On the node whose daemons die: their network is made and removed meanwhile. How many there were."""
    turn = 0
    while not stop.is_set():
        turn += 1
        await world.create(manifest(f"guest-{turn}", sleeper(), nodeName="node1"))
        await world.ready(f"guest-{turn}")
        await world.delete(f"guest-{turn}")
        await world.gone(f"guest-{turn}")
    return turn


@pytest.mark.parametrize("program", ["proxy", "agent"])
async def test_killed_many_times_under_load_breaks_nothing(world: World, program: str) -> None:
    made = await world.create(service("web", selector=APP, ports=[WEB_PORT]))
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    await world.api.post(path, deployment())
    await rolled_out(world, f"{path}/web")
    await client(world)
    address = made["spec"]["clusterIP"]
    await answers_from(
        world, f"http://{address}/hostname", {one["metadata"]["name"] for one in await world.pods("app=web")}
    )
    net, stop = world.cluster.namespace("node1", "net"), asyncio.Event()
    argv = ["nsenter", f"--net={net}", sys.executable, "-IS", PEER, "hold", address, "80"]
    flow = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert flow.stdout is not None and flow.stdout.readline() == b"READY\n"
    guests = asyncio.create_task(pods_come_and_go(world, stop))
    with load([f"http://{address}/hostname"] * _THREADS, net=net, pause=_PAUSE) as asked:
        for _ in range(KILLS):
            await world.kill("node1", program)
            # Now and then before it is up, now and then at work.
            await asyncio.sleep(random.uniform(0, 2))
        stop.set()
        came = await guests
        result = asked.stop()
    held = flow.communicate(b"stop\n", timeout=30)[0].decode().strip()
    text = f"{result['asked']} asked, {len(result['failed'])} failed, slowest {result['slowest']:.2f} s; flow: {held}"
    world.stats.append((f"{program} killed {KILLS} times, {came} pods came and went", text))
    assert result["failed"] == [] and held.startswith("ok")
