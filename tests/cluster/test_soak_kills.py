"""Agents, proxies and containerds are killed at random moments, under churn and traffic: nobody may notice.

By hand: NODEWRIGHT_SOAK=1000 ./nodewright test tests/cluster/test_soak_kills.py -m soak
(the number of kills; NODEWRIGHT_MINUTES=60 ends it earlier, NODEWRIGHT_SEED=7 repeats a run, NODEWRIGHT_CSV=FILE keeps
what the daemons took over time, NODEWRIGHT_CLOCK=1 also steps the agents' wall clocks). The CNI server lives in the
agent and dies with it.

A soak of two hours: NODEWRIGHT_MINUTES=120 NODEWRIGHT_BETWEEN=13 NODEWRIGHT_SPARED=node2 with the same command. At most
13 seconds lie between two kills, pods come and go more slowly, and the daemons of node2 live all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.cluster.soak_churn import Churn, Seen
from tests.cluster.soak_flows import traffic
from tests.cluster.soak_samples import held, nothing_held_beyond, sampled
from tests.cluster.start_notes import remove_notes, started_more_than_once, started_unended
from tests.cluster.stepped_clock import stepped_clock
from tests.cluster.world import Left, World, holds

Step = Callable[[float], None]
_KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
_SEED = int(os.environ.get("NODEWRIGHT_SEED", "1"))
_MINUTES = float(os.environ.get("NODEWRIGHT_MINUTES", "60"))
_CLOCK = bool(int(os.environ.get("NODEWRIGHT_CLOCK", "0")))
_CSV = os.environ.get("NODEWRIGHT_CSV", "")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _KILLS, reason="runs by hand: NODEWRIGHT_SOAK=1000"),
]

NODES = ("node1", "node2")
_LONGEST_LIFE = float(os.environ.get("NODEWRIGHT_BETWEEN", "2.5"))  # seconds between two kills, at most
_KILLED = [node for node in NODES if node != os.environ.get("NODEWRIGHT_SPARED")]
_SHARES = {"agent": 70, "proxy": 25, "containerd": 5}  # of a hundred kills
_STEP = 2 * 86_400  # seconds that a clock is ahead, at most; before the birth of the cluster no certificate is valid
_STEPS = 0.1  # of all kills, the share after which a clock is stepped
_HEARTBEAT = 20.0  # seconds without one before daemons of the node are left alone
_WRONG_AT_MOST = 20  # then the run ends: more of the same says nothing new


class Heartbeats:
    """A node whose agent is never up for long enough to send its heartbeat is rightly taken for dead after 50 s."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = dict[str, tuple[str, float]]()  # node -> the newest renewTime, and when it was seen first

    async def guard(self, node: str) -> None:
        """Wait for a new heartbeat if the newest one is old."""
        if not self._is_old(node, await self._renewed(node)):
            return

        async def is_new() -> bool:
            return not self._is_old(node, await self._renewed(node))

        await holds(is_new, f"{node} sends its heartbeat", 180)

    def _is_old(self, node: str, renewed: str) -> bool:
        now = time.monotonic()
        if self._seen.get(node, ("", 0))[0] != renewed:
            self._seen[node] = renewed, now
        return now - self._seen[node][1] > _HEARTBEAT

    async def _renewed(self, node: str) -> str:
        lease = await self._world.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
        return str(lease["spec"]["renewTime"])


async def kill_at_random(world: World, dice: random.Random, seen: Seen, clocks: list[Step]) -> Counter[str]:
    """Kill a daemon of a node, again and again, and step a clock now and then. How many of each there were."""
    counts, heartbeats, began = Counter[str](), Heartbeats(world), time.monotonic()
    for _ in range(_KILLS):
        await asyncio.sleep(dice.uniform(0, _LONGEST_LIFE))
        program = dice.choices(tuple(_SHARES), tuple(_SHARES.values()))[0]
        node = dice.choice(_KILLED)
        if program != "proxy":
            await heartbeats.guard(node)
        await world.kill(node, program)
        counts[program] += 1
        if clocks and dice.random() < _STEPS:
            dice.choice(clocks)(dice.uniform(0, _STEP))
            counts["steps of a clock"] += 1
        if len(seen.wrong) > _WRONG_AT_MOST or time.monotonic() - began > 60 * _MINUTES:
            break
    return counts


async def left_behind(world: World, node: str, left: Left, before: Counter[str]) -> list[str]:
    """What the node still has that it had not before the run."""
    found = []
    for waited in (world.nothing_beyond(node, left), nothing_held_beyond(world, node, before)):
        try:
            await waited
        except AssertionError as error:
            found.append(f"{node} has something left: {error}")
    return found


async def test_daemons_killed_at_random_moments_disturb_nothing(world: World) -> None:
    dice, seen = random.Random(_SEED), Seen()
    for node in NODES:
        await remove_notes(world, node)  # of a run that was killed
    left = {node: await world.left(node) for node in NODES}
    before = {node: await held(world, node) for node in NODES}
    churns = [Churn(world, node, seen, random.Random(dice.random()), _LONGEST_LIFE / 5) for node in NODES]
    try:
        async with contextlib.AsyncExitStack() as stack:
            clocks = [await stack.enter_async_context(stepped_clock(world, node)) for node in NODES if _CLOCK]
            for churn in churns:
                await churn.begin()
            going = await stack.enter_async_context(traffic(world, NODES))
            await stack.enter_async_context(sampled(world, NODES, _CSV))
            for churn in churns:
                await stack.enter_async_context(churn.under_way())
            counts = await kill_at_random(world, dice, seen, clocks)
            for node in NODES:
                await world.agent_well(node)
        for node in NODES:
            seen.wrong += [f"{name}: a start was killed" for name in await started_unended(world, node)]
            twice = await started_more_than_once(world, node, "steady-*", "churn-*")
            seen.wrong += [f"{name}: started {count} times" for name, count in twice.items()]
    finally:
        for one in await world.pods():
            await world.delete(one["metadata"]["name"])
        for one in await world.pods():
            await world.gone(one["metadata"]["name"])
        await world.delete("served", "services")
        for node in NODES:
            await remove_notes(world, node)
    text = ", ".join(f"{program} {count}" for program, count in counts.items())
    world.stats.append((f"kills, seed {_SEED}", text))
    world.stats.append(("pods come and gone / deaths / resizes", f"{seen.churned} / {seen.deaths} / {seen.resizes}"))
    world.stats.append(("traffic meanwhile", going.text))
    wrong = [*seen.wrong, *going.wrong]
    for node in NODES:
        wrong += await left_behind(world, node, left[node], before[node])
    world.stats.append(("what went wrong", str(len(wrong))))
    assert not wrong, "\n".join(wrong)
