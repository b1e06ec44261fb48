"""The agent is killed again and again while pods start, die, are probed, resized and deleted: no pod may notice.

By hand, for as many kills as wanted: NODEWRIGHT_SOAK=200 ./nodewright test tests/cluster/test_soak_agent.py -m soak
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time

import pytest

from cli.why.sources import SOCKET, asked
from tests.cluster.soak_churn import Churn, Seen
from tests.cluster.start_notes import noted, remove_notes, started_more_than_once, started_unended
from tests.cluster.world import Object, World, status_of

_KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _KILLS, reason="runs by hand: NODEWRIGHT_SOAK=200"),
]

NODE = "node1"
_LONGEST_LIFE = 2.5  # seconds until an agent that is there again is killed
_RESYNC = 2.0  # seconds; the target for the median, the start of the interpreter included


def _probed(pod: Object | None) -> bool:
    """A resize may be under way, a probe may not fail or be unanswered."""
    return pod is not None and pod["phase"] == "Running" and not [w for w in pod["waits"] if "Probe" in w["reason"]]


async def known_again(world: World, pid: int, wanted: list[str], seconds: float = 60) -> None:
    """Wait until the agent explains every one of these pods as running, with its probes passed."""
    deadline = time.monotonic() + seconds
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
    churn = Churn(world, NODE, seen, random.Random())
    try:
        await churn.begin()
        async with churn.under_way():
            for kill in range(_KILLS):
                await asyncio.sleep(random.uniform(0, _LONGEST_LIFE))
                old = await world.pid_once_running(NODE, "agent")
                os.kill(old, signal.SIGKILL)
                pid = await world.pid_once_running(NODE, "agent", other_than=old)
                if kill % 2:  # every other one dies before it can have finished its start
                    began = time.monotonic()
                    await known_again(world, pid, churn.steady)
                    seen.resync.append(time.monotonic() - began)
            await world.agent_well(NODE)
        world.stats.append(("soak: kills of the agent", str(_KILLS)))
        world.stats.append(
            ("soak: pods come and gone / deaths / resizes", f"{seen.churned} / {seen.deaths} / {seen.resizes}")
        )
        middle, worst = statistics.median(seen.resync or [0]), max(seen.resync, default=0)
        world.stats.append(("soak: agent started -> all pods known, median, worst", f"{middle:.2f} s, {worst:.2f} s"))
        assert not seen.wrong, "\n".join(seen.wrong)
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
