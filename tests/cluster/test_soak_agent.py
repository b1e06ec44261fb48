"""The agent is killed again and again while pods start, die, are probed, resized and deleted: no pod may notice.

By hand, for as many kills as wanted: NODEWRIGHT_SOAK=200 ./nodewright test tests/cluster/test_soak_agent.py -m soak
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from cli.why.sources import SOCKET, asked
from nodelib.errors import NodewrightError
from tests.cluster.start_notes import noted, remove_notes, started_more_than_once, started_unended
from tests.cluster.world import Object, World, condition, is_ready, status_of

_KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _KILLS, reason="runs by hand: NODEWRIGHT_SOAK=200"),
]

NODE = "node1"
_LONGEST_LIFE = 2.5  # seconds until an agent that is there again is killed
_STEADY = 6
_RESYNC = 2.0  # seconds; the target for the median, the start of the interpreter included


@dataclass
class Seen:
    """What no pod should have shown, and how long the agents took to be there again (seconds)."""

    wrong: list[str] = field(default_factory=list)
    resync: list[float] = field(default_factory=list)
    churned: int = 0
    deaths: int = 0
    resizes: int = 0


def steady(number: int) -> Object:
    kinds: list[Object] = [{"exec": {"command": ["true"]}}, {"tcpSocket": {"port": 8080}}, {"httpGet": {"port": 8080}}]
    probe = {**kinds[number % 3], "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 5}
    needs = {"requests": {"cpu": "10m"}, "limits": {"cpu": "100m"}}
    name = f"steady-{number}"
    serve = "mkdir -p /www; echo ok > /www/index.html; httpd -f -p 8080 -h /www & wait"
    return noted(name, NODE, serve, readinessProbe=probe, livenessProbe=probe, resources=needs)


async def watch(world: World, seen: Seen) -> None:
    """No steady pod may lose its readiness, restart, or vanish."""
    async for event in world.api.stream(world.path("pods"), {"labelSelector": "app=soak"}):
        obj = event["object"]
        name = obj["metadata"]["name"]
        if not name.startswith("steady-"):
            continue
        if event["type"] == "DELETED" or not is_ready(obj) or status_of(obj).get("restartCount"):
            box, ready = status_of(obj), condition(obj, "Ready")
            count, last = box.get("restartCount"), box.get("lastState")
            seen.wrong.append(f"{event['type']} {name}: {ready.get('message')} restarts {count} {last}")


async def churn(world: World, seen: Seen, stop: asyncio.Event, lane: int) -> None:
    """Pods that come and go."""
    turn = 0
    while not stop.is_set():
        name = f"churn-{lane}-{turn}"
        turn += 1
        await world.create(noted(name, NODE, "sleep 3600 & wait"))
        ready = await world.ready(name, 120)
        if status_of(ready)["restartCount"]:
            seen.wrong.append(f"{name} was restarted")
        await asyncio.sleep(random.uniform(0, 0.5))
        await world.delete(name)
        await world.gone(name, seconds=120)
        seen.churned += 1


async def dying(world: World, seen: Seen, stop: asyncio.Event) -> None:
    """A container that ends by itself: each end makes exactly one more start."""
    turn = 0
    while not stop.is_set():
        name = f"dying-{turn}"
        turn += 1
        await world.create(noted(name, NODE, "sleep 1; rm -rf /starts/{0}.runs; exit 1"))
        await world.until(name, lambda one: status_of(one).get("restartCount", 0) >= 2, "restarted twice", 120)
        await world.delete(name)
        await world.gone(name, seconds=120)
        seen.deaths += 1


async def resizing(world: World, seen: Seen, stop: asyncio.Event) -> None:
    while not stop.is_set():
        name = f"steady-{random.randrange(_STEADY)}"
        limit = f"{random.randrange(100, 200)}m"
        body = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": limit}}}]}}
        with contextlib.suppress(NodewrightError):
            await world.api.patch(f"{world.path('pods', name)}/resize", body, kind="strategic")
            seen.resizes += 1
        await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def under_way(world: World, seen: Seen) -> AsyncIterator[None]:
    stop = asyncio.Event()
    watching = asyncio.create_task(watch(world, seen))
    tasks = [
        *(asyncio.create_task(churn(world, seen, stop, lane)) for lane in range(3)),
        asyncio.create_task(dying(world, seen, stop)),
        asyncio.create_task(resizing(world, seen, stop)),
    ]
    try:
        yield
    finally:
        stop.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        watching.cancel()
        seen.wrong += [repr(end) for end in ends if isinstance(end, BaseException)]


def _probed(pod: Object | None) -> bool:
    """A resize may be under way, a probe may not fail or be unanswered."""
    return pod is not None and pod["phase"] == "Running" and not [w for w in pod["waits"] if "Probe" in w["reason"]]


async def known_again(world: World, pid: int, seconds: float = 60) -> None:
    """Wait until the agent explains every steady pod as running, with its probes passed."""
    wanted, deadline = {f"steady-{number}" for number in range(_STEADY)}, time.monotonic() + seconds
    while True:
        found, problem = await asked(f"/proc/{pid}/root{SOCKET}", "/why")
        pods = {one["name"]: one for one in (found or {}).get("pods", ()) if one["namespace"] == world.namespace}
        missing = {name: pods.get(name, {}).get("waits") for name in wanted if not _probed(pods.get(name))}
        if not missing:
            return
        assert time.monotonic() < deadline, f"{problem or missing}"
        await asyncio.sleep(0.02)


async def test_an_agent_killed_at_random_moments_disturbs_nothing(world: World) -> None:
    before, seen = await world.left(NODE), Seen()
    try:
        for number in range(_STEADY):
            await world.create(steady(number))
        for number in range(_STEADY):
            await world.ready(f"steady-{number}")
        async with under_way(world, seen):
            for kill in range(_KILLS):
                await asyncio.sleep(random.uniform(0, _LONGEST_LIFE))
                old = await world.pid_once_running(NODE, "agent")
                os.kill(old, signal.SIGKILL)
                pid = await world.pid_once_running(NODE, "agent", other_than=old)
                if kill % 2:  # every other one dies before it can have finished its start
                    began = time.monotonic()
                    await known_again(world, pid)
                    seen.resync.append(time.monotonic() - began)
            await world.agent_well(NODE)
        world.stats.append(("soak: kills of the agent", str(_KILLS)))
        world.stats.append(
            ("soak: pods come and gone / deaths / resizes", f"{seen.churned} / {seen.deaths} / {seen.resizes}")
        )
        middle, worst = statistics.median(seen.resync or [0]), max(seen.resync, default=0)
        world.stats.append(("soak: agent started -> all pods known, median, worst", f"{middle:.2f} s, {worst:.2f} s"))
        assert seen.wrong == []
        assert await started_unended(world, NODE) == []
        assert await started_more_than_once(world, NODE, "steady-*", "churn-*") == {}
    finally:
        for one in await world.pods():
            await world.delete(one["metadata"]["name"])
        for one in await world.pods():
            await world.gone(one["metadata"]["name"])
        await remove_notes(world, NODE)
    await world.nothing_beyond(NODE, before)
    assert middle < _RESYNC


async def test_a_kill_while_containers_start_costs_them_no_restart(world: World) -> None:
    """For any kubelet: `up --agent upstream` shows how many restarts upstream's counts."""
    lane, restarted, twice = 4, 0, 0
    try:
        for kill in range(_KILLS):
            names = [f"starts-{kill}-{number}" for number in range(lane)]
            await asyncio.gather(*(world.create(noted(name, NODE, "sleep 3600 & wait")) for name in names))
            await asyncio.sleep(random.uniform(0.2, 1.5))
            await world.kill(NODE, "agent")
            ready = [await world.ready(name) for name in names]
            restarted += sum(status_of(one)["restartCount"] > 0 for one in ready)
            twice += len(await started_more_than_once(world, NODE, f"starts-{kill}-*"))
            for name in names:
                await world.delete(name)
            for name in names:
                await world.gone(name)
    finally:
        await remove_notes(world, NODE)
    text = f"{restarted} and {twice} of {_KILLS * lane}"
    world.stats.append((f"{_KILLS} kills while containers start: restarts shown, started twice", text))
    assert (restarted, twice) == (0, 0)
