"""The eviction manager over the real table and workers, on a virtual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.common.work.observable import Observable
from agent.eviction.model import EvictionPolicy, Threshold
from agent.eviction.plan.thresholds import share
from agent.eviction.work.eviction import EvictionDeps, Evictor
from agent.stats.model import FsUsage, NodeStats, PodStats
from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait
from tests.builders.metrics import series
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World
from tests.unit.agent.eviction.usage import MIB, node, used_by

MEMORY = Threshold("memory.available", share("100Mi"))
DISK = Threshold("nodefs.available", share("100"))


class Usage:
    """Measurements that a test sets; `measured`: the UIDs of each request; usage() with storage waits for `slow`."""

    def __init__(self) -> None:
        self.now = node()
        self.pods: dict[str, PodStats] = {}
        self.measured: list[list[str]] = []
        self.fail = False
        self.slow: asyncio.Event | None = None

    async def node(self) -> NodeStats:
        if self.fail:
            raise Temporary("no stats")
        return self.now

    async def usage(self, uids: Collection[str], *, storage: bool = True) -> Mapping[str, PodStats]:
        self.measured.append(sorted(uids))
        if self.slow is not None and storage:
            await self.slow.wait()
        return {uid: self.pods[uid] for uid in uids if uid in self.pods}


class Reclaim:
    """`frees`: removing unused images frees enough of the disk."""

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
        self.reclaim = Reclaim(self.usage)
        policy = EvictionPolicy((MEMORY, DISK), transition=30)
        parts = EvictionDeps(
            self.usage,
            world.registry,
            self.reclaim,
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


async def test_without_pressure_no_pod_is_measured(there: Node) -> None:
    await there.run_pods("a")
    assert await there.evictor.synchronize() == []
    assert there.usage.measured == [] and there.pressures.now == ()


async def test_the_report_has_what_the_last_round_saw_and_who_was_evicted(there: Node) -> None:
    assert there.evictor.report().at == 0
    await there.run_pods("a")
    there.short_of_disk()
    there.usage.pods = {"a": used_by("a", layer=MIB)}
    assert await there.evictor.synchronize() == ["a"]
    report = there.evictor.report()
    memory, disk = report.levels
    assert (memory.signal, memory.capacity, memory.least, memory.since) == (
        "memory.available",
        1024 * MIB,
        100 * MIB,
        0,
    )
    assert (disk.available, disk.capacity, disk.least) == (5, 1000, 100)
    assert disk.since == report.at == there.world.clock.now()
    assert report.conditions == ("DiskPressure",)
    (evicted,) = report.evicted
    assert (evicted.name, evicted.at) == ("a", report.at) and "ephemeral-storage" in evicted.message


async def test_the_pod_that_uses_most_fails_and_its_status_says_why(there: Node) -> None:
    await there.run_pods("a", "b")
    there.usage.now = node(memory=50 * MIB)
    there.usage.pods = {"a": used_by("a", memory=MIB), "b": used_by("b", memory=90 * MIB)}
    conditions: list[tuple[str, ...]] = []
    there.pressures.follow(lambda: conditions.append(there.pressures.now))
    assert await there.evictor.synchronize() == ["b"]
    await there.world.until(lambda: there.world.phase("b") == "Failed")
    status = there.world.status("b")
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: memory. ")
    (disrupted,) = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
    assert (disrupted["reason"], disrupted["message"]) == ("TerminationByKubelet", status["message"])
    assert there.world.phase("a") == "Running"
    assert conditions == [("MemoryPressure",)]
    assert {"EvictionThresholdMet", "Evicted"} <= set(there.world.events.reasons())
    assert series(there.world.metrics, "kubelet_evictions_total") == {("memory.available",): 1}
    assert [pod.uid for pod in there.world.registry.active()] == ["a"]


async def test_how_old_the_figures_are_by_which_a_pod_is_chosen(there: Node) -> None:
    await there.run_pods("a", priority=2_000_000_000)
    there.usage.now = node(memory=50 * MIB)
    assert await there.evictor.synchronize() == []
    assert series(there.world.metrics, "kubelet_eviction_stats_age_seconds_count") == {}, "nobody was to choose from"
    await there.run_pods("b")
    await there.world.clock.advance(10)

    async def slow_usage(uids: Collection[str], *, storage: bool = True) -> Mapping[str, PodStats]:
        await there.world.clock.sleep(3)
        return {}

    there.usage.usage = slow_usage  # type: ignore[method-assign]
    round_ = asyncio.create_task(there.evictor.synchronize())
    await there.world.clock.advance(3)
    assert await round_ == ["b"]
    assert series(there.world.metrics, "kubelet_eviction_stats_age_seconds_count") == {("memory.available",): 1}
    assert series(there.world.metrics, "kubelet_eviction_stats_age_seconds_sum") == {("memory.available",): 3}


@pytest.mark.parametrize("step", [3600, -3600, 2 * 86400, -2 * 86400])
async def test_pressure_lasts_as_long_whatever_somebody_sets_the_clock_to(there: Node, step: float) -> None:
    there.usage.now = node(memory=50 * MIB)
    await there.evictor.synchronize()
    there.usage.now = node()
    there.world.clock.step(step)
    await there.world.clock.advance(20)
    await there.evictor.synchronize()
    assert list(there.pressures.now) == ["MemoryPressure"]
    await there.world.clock.advance(11)
    await there.evictor.synchronize()
    assert list(there.pressures.now) == []


async def test_a_critical_pod_stays(there: Node) -> None:
    await there.run_pods("a", priority=2_000_000_000)
    there.usage.now = node(memory=0)
    assert await there.evictor.synchronize() == []
    assert there.world.phase("a") == "Running"


async def test_what_did_not_help_is_not_tried_every_second(there: Node) -> None:
    await there.run_pods("a", priority=2_000_000_000)
    there.short_of_disk()
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.clock.advance(25)
    finally:
        await cancel_and_wait(running)
    assert there.reclaim.log == ["containers", "images"] * 3


async def test_the_node_frees_what_it_can_before_it_evicts_a_pod(there: Node) -> None:
    await there.run_pods("a")
    there.short_of_disk()
    there.reclaim.frees = True
    assert await there.evictor.synchronize() == []
    assert there.reclaim.log == ["containers", "images"]
    assert there.world.phase("a") == "Running"


async def test_a_pod_is_evicted_when_that_was_not_enough(there: Node) -> None:
    await there.run_pods("a")
    there.short_of_disk()
    assert await there.evictor.synchronize() == ["a"]
    assert there.pressures.now == ("DiskPressure",)


async def test_one_pod_at_a_time_and_the_next_only_when_it_is_over(there: Node) -> None:
    await there.run_pods("a", "b")
    there.usage.now = node(memory=0)
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.until(lambda: there.world.phase("b") == "Failed" and there.world.phase("a") == "Failed")
    finally:
        await cancel_and_wait(running)
    assert series(there.world.metrics, "kubelet_evictions_total") == {("memory.available",): 2}


async def test_the_next_pod_is_evicted_as_soon_as_the_last_one_is_over(there: Node) -> None:
    """Not when the limit of 30 s for its cleaning up has passed: its worker says so."""
    await there.run_pods("a", "b")
    there.usage.now = node(memory=0)
    began = there.world.clock.monotonic()
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.until(lambda: there.world.phase("b") == there.world.phase("a") == "Failed", seconds=10)
    finally:
        await cancel_and_wait(running)
    assert there.world.clock.monotonic() - began < 10


async def test_a_pod_that_cannot_be_cleaned_up_holds_up_the_next_eviction_for_30_seconds(there: Node) -> None:
    await there.run_pods("a", "b")
    there.usage.now = node(memory=0)
    there.world.cri.fail["stop_sandbox"] = [Temporary("busy") for _ in range(1000)]
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.clock.advance(29)
        assert there.world.events.reasons().count("Evicted") == 1
        await there.world.clock.advance(2)
        assert there.world.events.reasons().count("Evicted") == 2
    finally:
        await cancel_and_wait(running)


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
        await cancel_and_wait(running)


async def test_limits_of_storage_are_enforced_for_pods_that_have_them(there: Node) -> None:
    limits = container("main", resources={"limits": {"ephemeral-storage": "1Mi"}})
    there.world.create(limits, name="a", uid="a")
    await there.run_pods("b")
    there.usage.pods = {"a": used_by("a", layer=2 * MIB), "b": used_by("b", layer=9 * MIB)}
    assert await there.evictor.synchronize() == ["a"]
    assert there.usage.measured == [["a"]]
    await there.world.until(lambda: there.world.phase("a") == "Failed")
    assert not any(one["type"] == "DisruptionTarget" for one in there.world.status("a")["conditions"])


async def test_a_limit_that_is_no_amount_ends_no_evictions(there: Node) -> None:
    """One pod with such a sizeLimit, which the API server accepts, and nothing was evicted on its node any more."""
    there.world.create(name="far", uid="far", volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1e3000000"}}])
    await there.run_pods("a")
    there.short_of_disk()
    there.usage.pods = {"a": used_by("a", layer=MIB)}
    there.usage.pods["far"] = used_by("far")
    assert await there.evictor.synchronize() == ["a"]


async def test_limits_of_very_many_volumes_are_read_once(there: Node) -> None:
    """Fifty pods of 25,000 volumes took 6 s of the event loop in each round, of which there may be one a second."""
    volumes = [{"name": f"v{number}", "emptyDir": {"sizeLimit": f"{number + 1}Mi"}} for number in range(25_000)]
    there.world.create(container(), name="many", uid="many", volumes=volumes)
    await there.run_pods("a")
    await there.evictor.synchronize()
    began = time.process_time()
    for _ in range(10):
        await there.evictor.synchronize()
    assert time.process_time() - began < 0.3


async def test_no_round_waits_for_a_pod_with_millions_of_files(there: Node) -> None:
    """Its limit is enforced when it has been measured; the node's memory is watched meanwhile."""
    there.world.create(container("main", resources={"limits": {"ephemeral-storage": "1Mi"}}), name="a", uid="a")
    await there.run_pods("b")
    there.usage.pods = {"a": used_by("a", layer=2 * MIB)}
    there.usage.slow = asyncio.Event()
    running = asyncio.create_task(there.evictor.run())
    try:
        await there.world.clock.advance(11)
        there.usage.now = node(memory=50 * MIB)
        await there.world.clock.advance(14)
        assert there.pressures.now == ("MemoryPressure",)
        there.usage.now = node()
        there.usage.slow.set()
        await there.world.clock.advance(11)
        await there.world.until(lambda: there.world.phase("a") == "Failed")
        assert there.usage.measured[0] == ["a"]
    finally:
        await cancel_and_wait(running)


async def test_nobody_counts_files_while_memory_runs_out(there: Node) -> None:
    """A pod may have as many as the disk has inodes, five million took 18 s in memory; meanwhile the kernel kills."""
    await there.run_pods("a", "b")
    there.usage.slow = asyncio.Event()
    there.usage.pods = {"a": used_by("a", memory=MIB), "b": used_by("b", memory=500 * MIB)}
    there.usage.now = node(memory=0)
    async with asyncio.timeout(5):
        assert await there.evictor.synchronize() == ["b"]


async def test_a_measurement_that_fails_is_tried_again(there: Node) -> None:
    there.usage.fail = True
    running = asyncio.create_task(there.evictor.run())
    try:
        await settle()
        there.usage.fail = False
        there.usage.now = node(memory=0)
        await there.world.clock.advance(11)
        assert there.pressures.now == ("MemoryPressure",)
    finally:
        await cancel_and_wait(running)


async def test_a_pod_that_is_being_deleted_still_fails_and_sooner(there: Node) -> None:
    await there.run_pods("a", terminationGracePeriodSeconds=600)
    there.world.cri.ignores_term.add("main")
    there.world.api.ask_deletion("a", 600)
    await settle()
    there.usage.now = node(memory=0)
    assert await there.evictor.synchronize() == ["a"]
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
async def test_which_pods_are_admitted_under_pressure(
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
