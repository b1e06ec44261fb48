"""Hundreds of pods of one namespace whose volumes, cgroups and directories are cleaned up together."""

from __future__ import annotations

import asyncio

from agent.common.model.eviction import Eviction
from agent.common.work.gate import Gate
from tests.builders.pods import container, pod_json
from tests.fakes.pod_world import FakeVolumes, World


class HeldVolumes(FakeVolumes):
    """release() waits for `go`. `begun`: of which pods."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.begun = asyncio.Event(), list[str]()

    async def release(self, uid: str) -> None:
        self.begun.append(uid)
        await self.go.wait()
        await super().release(uid)


async def rejecting() -> tuple[World, HeldVolumes]:
    """A node that rejects twenty pods of one namespace, and one of another, where four are cleaned up at a time."""
    world, volumes = World(), HeldVolumes()
    world.volumes, world.release_gate = volumes, Gate(4, longest=None)
    await world.start_agent()
    for number in range(20):
        world.create(container(resources={"requests": {"cpu": "99"}}), name=f"p{number}", uid=f"u{number}")
    await world.until(lambda: volumes.begun, step=0.1)
    return world, volumes


async def test_pods_that_the_node_rejects_are_cleaned_up_in_turn() -> None:
    """Each is some threads' work, for which all others wait in one line: beside thousands of them, each step of the
    start of another namespace's pod took seconds."""
    world, volumes = await rejecting()
    huge = container(resources={"requests": {"cpu": "99"}})
    world.api.create(pod_json("other", huge, meta={"namespace": "other", "uid": "u99"}, restartPolicy="Always"))
    await world.until(lambda: world.release_gate.waiting == 17, step=0.1)
    assert len(volumes.begun) == 4
    volumes.go.set()
    await world.until(lambda: len(volumes.begun) == 21)
    assert volumes.begun.index("u99") == 4
    assert world.api.pods["u99"]["status"]["reason"] == "OutOfcpu"
    await world.kill_agent()


async def test_a_pod_that_is_evicted_is_cleaned_up_at_once() -> None:
    """The node waits for what it frees."""
    world, volumes = await rejecting()
    world.create(container("main"), uid="mine")
    await world.until(lambda: world.is_ready("mine"))
    memory = world.registry.memory("mine")
    assert memory is not None
    world.registry.evict(Eviction(memory.pod, "Evicted", "no memory", 1, disrupted=True))
    await world.until(lambda: "mine" in volumes.begun)
    assert world.release_gate.waiting == 16
    volumes.go.set()
    await world.kill_agent()
