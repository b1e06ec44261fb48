"""Pressure seen, told, relieved by the node's own garbage or by a pod: real table and workers on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.common.work.observable import Observable
from agent.eviction.model import EvictionPolicy, Threshold
from agent.eviction.plan.thresholds import share
from agent.eviction.work.eviction import EvictionParts, Evictor
from agent.stats.model import FsUsage, NodeStats, PodStats
from nodelib.errors import Temporary
from tests.builders.metrics import series
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World
from tests.unit.agent.eviction.figures import MIB, node, used_by

MEMORY = Threshold("memory.available", share("100Mi"))
DISK = Threshold("nodefs.available", share("100"))


class Usage:
    """What is told is what there is."""

    def __init__(self) -> None:
        self.now = node()
        self.pods: dict[str, PodStats] = {}
        self.measured: list[list[str]] = []
        self.fail = False

    async def node(self) -> NodeStats:
        if self.fail:
            raise Temporary("no figures")
        return self.now

    async def usage(self, uids: Collection[str]) -> Mapping[str, PodStats]:
        self.measured.append(sorted(uids))
        return {uid: self.pods[uid] for uid in uids if uid in self.pods}


class Garbage:
    """`frees`: the disk is well again once unused images are gone."""

    def __init__(self, usage: Usage) -> None:
        self.usage, self.frees, self.log = usage, False, [""][:0]

    async def remove_dead_containers(self) -> None:
        self.log.append("containers")
        raise Temporary("one would not go")

    async def remove_unused_images(self) -> None:
        self.log.append("images")
        if self.frees:
            self.usage.now = node()


class Node:
    """The world and its evictor."""

    def __init__(self, world: World) -> None:
        self.world, self.usage, self.pressures = world, Usage(), Observable[tuple[str, ...]](())
        self.garbage = Garbage(self.usage)
        policy = EvictionPolicy((MEMORY, DISK), transition=30)
        parts = EvictionParts(
            self.usage,
            world.registry,
            self.garbage,
            world.events,
            self.pressures,
            world.metrics,
            world.clock,
            lambda: {"kind": "Node", "name": "n1", "uid": "n1"},
        )
        self.evictor = Evictor(policy, parts)

    async def run_pods(self, *names: str, **spec: Any) -> None:
        for name in names:
            self.world.create(name=name, uid=name, **spec)
        await self.world.until(lambda: all(self.world.phase(name) == "Running" for name in names))

    def short_of_disk(self) -> None:
        self.usage.now = node(fs=FsUsage(1, 1000, 5, inodes=100, inodes_free=50, device=1))


@pytest.fixture
async def there() -> AsyncIterator[Node]:
    world = World()
    await world.start_agent()
    yield Node(world)
    await world.kill_agent()


async def test_a_node_that_is_well_measures_no_pod(there: Node) -> None:
    await there.run_pods("a")
    assert await there.evictor.look() == []
    assert there.usage.measured == [] and there.pressures.now == ()


async def test_the_pod_that_uses_most_fails_and_is_told_why(there: Node) -> None:
    await there.run_pods("a", "b")
    there.usage.now = node(memory=50 * MIB)
    there.usage.pods = {"a": used_by("a", memory=MIB), "b": used_by("b", memory=90 * MIB)}
    told: list[tuple[str, ...]] = []
    there.pressures.follow(lambda: told.append(there.pressures.now))
    assert await there.evictor.look() == ["b"]
    await there.world.until(lambda: there.world.phase("b") == "Failed")
    status = there.world.status("b")
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: memory. ")
    (disrupted,) = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
    assert (disrupted["reason"], disrupted["message"]) == ("TerminationByKubelet", status["message"])
    assert there.world.phase("a") == "Running"
    assert told == [("MemoryPressure",)]
    assert {"EvictionThresholdMet", "Evicted"} <= set(there.world.events.reasons())
    assert series(there.world.metrics, "kubelet_evictions_total") == {("memory.available",): 1}
    assert [pod.uid for pod in there.world.registry.active()] == ["a"]


async def test_a_critical_pod_stays(there: Node) -> None:
    await there.run_pods("a", priority=2_000_000_000)
    there.usage.now = node(memory=0)
    assert await there.evictor.look() == []
    assert there.world.phase("a") == "Running"


async def test_what_did_not_help_is_not_tried_every_second(there: Node) -> None:
    await there.run_pods("a", priority=2_000_000_000)
    there.short_of_disk()
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.clock.advance(25)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert there.garbage.log == ["containers", "images"] * 3


async def test_the_nodes_own_garbage_goes_before_any_pod(there: Node) -> None:
    await there.run_pods("a")
    there.short_of_disk()
    there.garbage.frees = True
    assert await there.evictor.look() == []
    assert there.garbage.log == ["containers", "images"]
    assert there.world.phase("a") == "Running"


async def test_a_pod_goes_when_the_garbage_was_not_enough(there: Node) -> None:
    await there.run_pods("a")
    there.short_of_disk()
    assert await there.evictor.look() == ["a"]
    assert there.pressures.now == ("DiskPressure",)


async def test_one_pod_at_a_time_and_the_next_only_when_it_is_over(there: Node) -> None:
    await there.run_pods("a", "b")
    there.usage.now = node(memory=0)
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.until(lambda: there.world.phase("b") == "Failed" and there.world.phase("a") == "Failed")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert series(there.world.metrics, "kubelet_evictions_total") == {("memory.available",): 2}


async def test_the_condition_ends_after_the_transition_period(there: Node) -> None:
    there.usage.now = node(memory=0)
    running = asyncio.create_task(there.evictor.run())
    try:
        await settle()
        there.usage.now = node()
        await there.world.clock.advance(29)
        before = there.pressures.now
        assert before == ("MemoryPressure",)
        await there.world.clock.advance(2)
        assert there.pressures.now == ()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_limits_of_storage_are_kept_by_those_that_have_them(there: Node) -> None:
    limits = container("main", resources={"limits": {"ephemeral-storage": "1Mi"}})
    there.world.create(limits, name="a", uid="a")
    await there.run_pods("b")
    there.usage.pods = {"a": used_by("a", layer=2 * MIB), "b": used_by("b", layer=9 * MIB)}
    assert await there.evictor.look() == ["a"]
    assert there.usage.measured == [["a"]]
    await there.world.until(lambda: there.world.phase("a") == "Failed")
    assert not any(one["type"] == "DisruptionTarget" for one in there.world.status("a")["conditions"])


async def test_figures_that_cannot_be_had_are_asked_for_again(there: Node) -> None:
    there.usage.fail = True
    running = asyncio.create_task(there.evictor.run())
    try:
        await settle()
        there.usage.fail = False
        there.usage.now = node(memory=0)
        await there.world.clock.advance(11)
        assert there.pressures.now == ("MemoryPressure",)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_pod_that_is_being_deleted_fails_all_the_same_and_sooner(there: Node) -> None:
    await there.run_pods("a", terminationGracePeriodSeconds=600)
    there.world.cri.ignores_term.add("main")
    there.world.api.ask_deletion("a", 600)
    await settle()
    there.usage.now = node(memory=0)
    assert await there.evictor.look() == ["a"]
    memory = there.world.registry.memory("a")
    assert memory is not None and memory.termination is not None
    assert memory.termination.fails and memory.termination.grace == 1


@pytest.mark.parametrize(
    ("pressures", "spec", "runs"),
    [
        (("MemoryPressure",), {}, False),
        (("MemoryPressure",), {"requests": "1Mi"}, True),
        (
            ("MemoryPressure",),
            {"tolerations": [{"operator": "Exists"}]},
            True,
        ),
        (("DiskPressure",), {"requests": "1Mi"}, False),
        (("MemoryPressure", "DiskPressure"), {"requests": "1Mi"}, False),
        (("DiskPressure",), {"priority": 2_000_000_000}, True),
    ],
    ids=["best effort", "asks for memory", "tolerates", "disk", "both", "critical"],
)
async def test_who_is_taken_under_pressure(
    there: Node, pressures: tuple[str, ...], spec: dict[str, Any], runs: bool
) -> None:
    there.world.node = replace(there.world.node, pressures=pressures)
    more = dict(spec)
    asked = more.pop("requests", "")
    box = container("main", resources={"requests": {"memory": asked}} if asked else {})
    there.world.create(box, name="new", uid="new", **more)
    await there.world.until(lambda: there.world.phase("new") in ("Running", "Failed"))
    assert there.world.phase("new") == ("Running" if runs else "Failed")
    if not runs:
        words = " ".join(pressures)
        assert there.world.status("new")["reason"] == "Evicted"
        assert there.world.status("new")["message"] == f"Pod was rejected: The node had condition: [{words}]. "
