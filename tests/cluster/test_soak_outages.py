"""Long outages: containerd killed under 60 pods, the API server gone for minutes.

By hand: NODEWRIGHT_SOAK=6 (kills, minutes) ./nodewright test tests/cluster/test_soak_outages.py -m soak
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from agent.common.model.pods import RunState
from tests.builders.pods import container, manifest, sleeper, web
from tests.cluster.start_notes import noted, remove_notes, started_more_than_once
from tests.cluster.world import Object, World, condition, containers_of, holds, is_ready, load, status_of

_SOAK = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _SOAK, reason="runs by hand: NODEWRIGHT_SOAK says how many kills or minutes"),
]

NODE = "node1"
_PODS = 60
_PROBES = (None, {"exec": {"command": ["true"]}}, {"tcpSocket": {"port": 8080}})


def resident(number: int) -> Object:
    """A third has an exec probe, for which the runtime is asked, a third a TCP probe."""
    probe = _PROBES[number % 3]
    times = {"periodSeconds": 2, "failureThreshold": 2, "timeoutSeconds": 10}
    more: Object = {} if probe is None else {"readinessProbe": {**probe, **times}, "livenessProbe": {**probe, **times}}
    return noted(f"resident-{number}", NODE, "httpd -f -p 8080 -h / & wait", **more)


async def watch(world: World, wrong: list[str]) -> None:
    """No pod may lose its readiness, restart, or vanish."""
    async for event in world.api.stream(world.path("pods"), {"labelSelector": "app=soak"}):
        obj = event["object"]
        if event["type"] == "DELETED" or not is_ready(obj) or status_of(obj)["restartCount"]:
            wrong.append(f"{event['type']} {obj['metadata']['name']}: {condition(obj, 'Ready').get('message')}")


async def test_containerd_killed_under_sixty_pods(world: World) -> None:
    before = await world.left(NODE)
    names = [f"resident-{number}" for number in range(_PODS)]
    try:
        await asyncio.gather(*(world.create(resident(number)) for number in range(_PODS)))
        for name in names:
            await world.ready(name, 300)
        ids, wrong = containers_of(await world.pods()), list[str]()
        watching = asyncio.create_task(watch(world, wrong))
        for turn in range(_SOAK):
            began = time.monotonic()
            await world.kill(NODE, "containerd")
            await world.run(manifest(f"after-{turn}", nodeName=NODE))
            took = time.monotonic() - began
            world.stats.append((f"containerd killed under {_PODS} pods -> a new one is Ready", f"{took:.2f} s"))
            await world.delete(f"after-{turn}")
            await world.gone(f"after-{turn}")
        watching.cancel()
        assert wrong == []
        assert containers_of(await world.pods()) == ids
        attempts = [one for one in await world.attempts(NODE) if f"containerd://{one.id}" in ids]
        assert [one.state for one in attempts] == [RunState.RUNNING] * _PODS
        assert await started_more_than_once(world, NODE, "resident-*") == {}
    finally:
        for one in await world.pods():
            await world.delete(one["metadata"]["name"])
        for one in await world.pods():
            await world.gone(one["metadata"]["name"], seconds=300)
        await remove_notes(world, NODE)
    await world.nothing_beyond(NODE, before)


async def test_an_api_server_that_is_gone_for_minutes(world: World) -> None:
    """Requests are served, what crashes or fails its probe starts again; then every status catches up."""
    await world.run(manifest("server", web(), nodeName=NODE))
    alive = {"exec": {"command": ["sh", "-c", "! test -e /tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    ready = {"exec": {"command": ["sh", "-c", "! test -e /tmp/busy"]}, "periodSeconds": 1, "failureThreshold": 1}
    crash = container(script="while ! test -e /tmp/crash; do sleep 0.2; done; exit 4")
    boxes = (crash, sleeper("probed", livenessProbe=alive), sleeper("busy", readinessProbe=ready))
    made = await world.run(manifest("fragile", *boxes, nodeName=NODE))
    before, uid, turns = await world.get("server"), made["metadata"]["uid"], 3
    url = f"http://{before['status']['podIP']}:8080/hostname"
    with load([url], net=world.cluster.namespace(NODE, "net")) as asked:
        async with world.stopped_api_server(_SOAK * 60 + 600):
            began = time.monotonic()
            for turn in range(1, turns + 1):
                await _crash(world, uid)
                await _run_again(world, uid, turn)
                took = time.monotonic() - began
                world.stats.append((f"no API server: started again, time {turn}, after", f"{took:.0f} s"))
                await asyncio.sleep(max(0.0, _SOAK * 60 * turn / turns - took))
            gone = time.monotonic() - began
        began, result = time.monotonic(), asked.stop()

    def caught_up(obj: Object) -> bool:
        counts = [status_of(obj, name).get("restartCount") for name in ("main", "probed", "busy")]
        return counts == [turns, turns, 0] and not status_of(obj, "busy")["ready"] and not is_ready(obj)

    await world.until("fragile", caught_up, "the status has caught up")
    world.stats.append((f"API server back after {gone / 60:.1f} min -> status", f"{time.monotonic() - began:.1f} s"))
    world.stats.append(("asked meanwhile", f"{result['asked']}, {len(result['failed'])} failed"))
    assert result["failed"] == []

    async def node_well() -> bool:
        return is_ready(await world.api.get(f"/api/v1/nodes/{NODE}"))

    await holds(node_well, "the node is Ready")
    assert containers_of([await world.get("server")]) == containers_of([before])
    began = time.monotonic()
    await world.run(manifest("next", nodeName=NODE))
    world.stats.append(("API server back: a new pod is Ready after", f"{time.monotonic() - began:.1f} s"))


async def _crash(world: World, uid: str) -> None:
    """End one container, and let the probes of the two others fail."""
    files = {"main": "/tmp/crash", "probed": "/tmp/dead", "busy": "/tmp/busy"}
    async with world.cri(NODE) as cri:
        for one in await cri.list_containers(uid):
            if one.state is RunState.RUNNING:
                await cri.exec_sync(one.id, ["touch", files[one.name]], 30)


async def _run_again(world: World, uid: str, attempt: int) -> None:
    async with world.cri(NODE) as cri:

        async def both() -> bool:
            listed = await cri.list_containers(uid)
            running = {one.name: one.attempt for one in listed if one.state is RunState.RUNNING}
            return running == {"main": attempt, "probed": attempt, "busy": 0}

        await holds(both, f"what crashed and what failed its probe runs again, attempt {attempt}", 300)
