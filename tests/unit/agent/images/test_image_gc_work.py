"""The image collector with a store that records what was removed, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from agent.common.metrics import Metrics
from agent.common.model.pods import ContainerState, ImageFacts, RunState
from agent.images.plan.image_gc import ImageGcPolicy
from agent.images.work.image_gc import INTERVAL, ImageCollector, ImageCollectorDeps
from agent.stats.model import FsUsage, NodeStats
from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait
from tests.builders.metrics import metrics, series
from tests.fakes.clock import FakeClock
from tests.fakes.pod_world import FakeEvents
from tests.unit.agent.eviction.usage import node


class Store:
    """Images of 100 bytes on a disk of 1000."""

    def __init__(self, *names: str) -> None:
        self.images = {name: ImageFacts(name, (f"{name}:1",), (), 100) for name in names}
        self.used: list[str] = []
        self.stuck: set[str] = set()
        self.other = 0

    async def list_images(self) -> tuple[ImageFacts, ...]:
        return tuple(self.images.values())

    async def remove_image(self, reference: str) -> None:
        if reference in self.stuck:
            raise Temporary("read-only file system", obj=reference)
        del self.images[reference]

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        return tuple(ContainerState("c", "s", "u", "m", 0, RunState.RUNNING, 1, image_id=name) for name in self.used)

    async def prune(self, left: Collection[str], began: float) -> None:
        self.left = sorted(left)

    async def node(self) -> NodeStats:
        taken = sum(one.size for one in self.images.values()) + self.other
        return node(fs=FsUsage(1, 1000, 1000 - taken, inodes=10, inodes_free=9))


def collector(store: Store, policy: ImageGcPolicy) -> tuple[ImageCollector, FakeClock, FakeEvents, Metrics]:
    clock, events, measured = FakeClock(), FakeEvents(), metrics()
    parts = ImageCollectorDeps(
        store, store, events, measured, clock, lambda: {"kind": "Node", "name": "n"}, tuple, store.prune
    )
    return ImageCollector(policy, parts), clock, events, measured


async def test_only_as_many_images_as_necessary() -> None:
    store = Store("a", "b", "c", "d")
    store.used, store.other = ["a"], 500
    found, clock, events, measured = collector(store, ImageGcPolicy(90, 75, min_age=60))
    with pytest.raises(Temporary, match="Insufficient free disk space"):
        await found.collect()
    assert len(store.images) == 4, "all of them may just have been pulled"
    assert events.reasons() == ["FreeDiskSpaceFailed"]
    await clock.advance(60)
    await found.collect()
    assert sorted(store.images) == store.left == ["a", "d"]
    assert series(measured, "kubelet_image_garbage_collected_total") == {("space",): 2}


async def test_too_little_space_and_a_second_failure_are_events_of_their_own() -> None:
    store = Store("a")
    store.used, store.other = ["a"], 850
    found, clock, events, _ = collector(store, ImageGcPolicy(90, 80, min_age=0))
    running = asyncio.create_task(found.run())
    try:
        await clock.advance(INTERVAL + 1)
    finally:
        await cancel_and_wait(running)
    assert events.reasons() == ["FreeDiskSpaceFailed", "FreeDiskSpaceFailed", "ImageGCFailed"]


async def test_an_image_that_cannot_be_removed_does_not_stop_the_others() -> None:
    store = Store("a", "b", "c")
    store.stuck = {"a"}
    found, clock, _, _ = collector(store, ImageGcPolicy(min_age=0))
    await clock.advance(1)
    with pytest.raises(Temporary, match="1 images could not be removed, the first: a: read-only"):
        await found.remove_unused()
    assert list(store.images) == ["a"]


async def test_images_unused_for_too_long_are_removed_on_any_disk() -> None:
    store = Store("a", "b")
    store.used = ["a"]
    found, clock, _, measured = collector(store, ImageGcPolicy(max_age=600))
    await found.collect()
    await clock.advance(601)
    await found.collect()
    assert list(store.images) == ["a"]
    assert series(measured, "kubelet_image_garbage_collected_total") == {("age",): 1}


async def test_a_policy_that_is_off_removes_nothing() -> None:
    store = Store("a", "b")
    store.other = 799
    found, clock, events, _ = collector(store, ImageGcPolicy(100, 80, min_age=0))
    await clock.advance(INTERVAL)
    await found.collect()
    assert len(store.images) == 2 and events.emitted == []


async def test_a_report_changes_nothing_and_has_the_last_collection() -> None:
    store = Store("a", "b", "c")
    store.used, store.other = ["a"], 650
    found, clock, events, _ = collector(store, ImageGcPolicy(90, 50, min_age=60))
    first = await found.report()
    assert {one.name: [hold.kind.value for hold in one.holds] for one in first.images} == {
        "a:1": ["container"],
        "b:1": ["young"],
        "c:1": ["young"],
    }
    assert (first.to_free, first.last, first.node) == (450, None, "n")
    with pytest.raises(Temporary):
        await found.collect()
    await clock.advance(60)
    report = await found.report()
    assert [one.name for one in report.images if not one.holds] == ["b:1", "c:1"]
    assert len(store.images) == 3
    with pytest.raises(Temporary):
        await found.collect()
    last = (await found.report()).last
    assert last is not None
    assert (last.wanted, last.freed, last.removed) == (450, 200, ("b:1", "c:1"))
    kept = "100 B in 1 image used by containers; the largest: a:1 (100 B, container ?/?[m])"
    assert kept in last.problem and kept in events.emitted[-1][2]
