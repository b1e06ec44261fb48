"""A runtime that fails, loses answers and hangs: the final state is right each time, and no pod delays another.

The agent's calls to the node's containerd, which is the real one, go through tests/cri_proxy.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from agent.common.model.pods import RunState
from tests.builders.pods import manifest, sleeper
from tests.cluster.faulty_runtime import behind_proxy
from tests.cluster.world import World, holds
from tests.cri_proxy import CriProxy

_SEEDS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"
_PODS = 8
_HUNG = 7
_RATE = 0.2


async def assert_right_after_faults(world: World, seed: int) -> None:
    """Pods are created and deleted while a fifth of all calls and events fail; then the faults stop."""
    dice, before = random.Random(seed), await world.left(NODE)
    names = [f"pod-{number}" for number in range(_PODS)]
    kept = set(dice.sample(names, _PODS // 2))
    async with behind_proxy(world, NODE, seed) as proxy:
        proxy.rate = _RATE
        for name in names:
            await world.create(manifest(name, nodeName=NODE))
            await asyncio.sleep(dice.uniform(0, 0.3))
        for name in names:
            if name not in kept:
                await world.delete(name)
                await asyncio.sleep(dice.uniform(0, 0.5))
        await asyncio.sleep(4)
        await world.kill(NODE, "agent")  # its first look is at a runtime that fails
        await asyncio.sleep(4)
        proxy.rate = 0.0
        for name in sorted(set(names) - kept):
            await world.gone(name)
        for name in sorted(kept):
            await world.ready(name)
        world.stats.append((f"faulty runtime, seed {seed}: faults", str(proxy.faults.total())))
        assert proxy.faults.total() > 5, proxy.faults
    uids = {one["metadata"]["uid"] for one in await world.pods()}
    running = [one.uid for one in await world.attempts(NODE) if one.uid in uids and one.state is RunState.RUNNING]
    assert sorted(running) == sorted(uids), "one container runs of each pod"
    boxes = [one.uid for one in await world.sandboxes(NODE) if one.uid in uids and one.ready]
    assert sorted(boxes) == sorted(uids), "one sandbox stands of each pod"
    for name in kept:
        await world.delete(name)
    for name in kept:
        await world.gone(name)
    await world.nothing_beyond(NODE, before)


async def test_the_end_is_right_whatever_the_runtime_did(world: World) -> None:
    await assert_right_after_faults(world, 1)


@pytest.mark.soak
@pytest.mark.skipif(not _SEEDS, reason="runs by hand: NODEWRIGHT_SOAK says how many seeds")
async def test_the_end_is_right_for_many_seeds(world: World) -> None:
    for seed in range(2, 2 + _SEEDS):
        await assert_right_after_faults(world, seed)


# The pods whose start hung are reused for the stop that hangs.
_METHODS = ("RunPodSandbox", "PullImage", "ExecSync", "StartContainer", "StopContainer")


async def test_a_call_that_hangs_delays_no_other_pod(world: World) -> None:
    """Seven pods hang in the same call: more than a small node's agent has threads. One kind of call at a time."""
    async with behind_proxy(world, NODE) as proxy:
        took = [await hung_in(world, proxy, method) for method in _METHODS]
        for one in await world.pods():
            await world.gone(one["metadata"]["name"])
    assert max(took) < 30


async def hung_in(world: World, proxy: CriProxy, method: str) -> float:
    """How many seconds another pod takes meanwhile to become Ready, or to be deleted; the longer of both."""
    kind = "box" if method in ("StartContainer", "StopContainer") else method.lower()
    hung = [f"{kind}-{number}" for number in range(_HUNG)]
    if method == "StopContainer":
        await asyncio.gather(*(world.ready(name) for name in hung))
    with contextlib.ExitStack() as held:
        for name in hung:
            held.enter_context(proxy.hang(method, name))
            await _towards(world, method, name)

        async def all_hang() -> bool:
            return all(proxy.waiting[method, name] for name in hung)

        await holds(all_hang, f"every {method} hangs")
        took = await world.another(f"{_HUNG} pods hang in {method}", NODE)
        assert await all_hang()
    for name in hung if kind != "box" else ():
        await world.delete(name, grace=0 if method == "PullImage" else None)
    return took


async def _towards(world: World, method: str, name: str) -> None:
    """Make the pod need this call."""
    box = sleeper()
    if method == "StopContainer":
        await world.delete(name)
        return
    if method == "ExecSync":
        box["readinessProbe"] = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 600}
    elif method == "PullImage":
        box["image"] = f"registry.k8s.io/{name}:1"
    await world.create(manifest(name, box, nodeName=NODE))
