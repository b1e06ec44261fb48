"""What is reported about pulls while they last, and which of those that wait is next."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.common.model.pods import ImageFacts, Pod
from agent.common.model.states import ImageState
from agent.images.edge.image_content import ImageContent
from agent.images.model.pulls import Manifest, PullProgress
from agent.images.plan.images import Wanted
from agent.images.plan.pull_records import VerifyPolicy
from agent.images.work.images import ImageManager, ImageManagerDeps
from agent.images.work.pull_progress import PullWatcher
from agent.images.work.pull_records import PullRecords
from agent.pods.work.startup_latency import StartupLatencyTracker
from nodelib.json_values import Json
from tests.builders.metrics import metrics
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.fake_cri import FakeCri
from tests.fakes.pod_world import FakeCheckpoints, FakeEvents, FakePullSecrets
from tests.waiting import until

MIB = 1 << 20


class FakeContent:
    """One image of one repository, of which `there` bytes have come."""

    def __init__(self) -> None:
        self.there, self.asked, self.closed = 0, 0, False
        self.fail: PluginError | None = None
        self.hangs = False

    async def under_way(self) -> Mapping[str, int]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fail is not None:
            raise self.fail
        return {"layer": self.there}

    async def manifests(self, host: str, repository: str) -> tuple[Manifest, ...]:
        assert (host, repository) == ("docker.io", "r/web")
        return (Manifest("m", 0, frozenset({"layer"})),)

    async def sizes(self, manifest: str) -> Mapping[str, int]:
        return {"layer": 100 * MIB}

    async def present(self, digests: Collection[str]) -> frozenset[str]:
        assert not digests
        return frozenset()

    async def close(self) -> None:
        self.closed = True


class World:
    """An image manager whose pulls last until `go` is set."""

    def __init__(self, parallel: int = 5, refresh_limit: float = 1.0, longest: float = 60.0) -> None:
        self.clock, self.content, self.events = FakeClock(), FakeContent(), FakeEvents()
        self.cri = FakeCri(self.clock)
        self.go = asyncio.Event()
        self.cri.before["pull_image"] = lambda what: self.go.wait()
        records = PullRecords(VerifyPolicy(), FakeCheckpoints(), FakeCheckpoints(), self.clock)
        measured = metrics()
        startups = StartupLatencyTracker(measured, self.clock)
        watch = PullWatcher(self.content, self.clock)
        self.deps = ImageManagerDeps(
            self.cri, FakePullSecrets(), self.events, self.clock, records, measured, startups.pulled, watch
        )
        self.manager = ImageManager(self.deps, parallel, refresh_limit, longest=longest)

    async def pull(self, one: Pod, image: str = "r/web:1") -> None:
        self.cri.registry[image] = ImageFacts(f"sha256:{image}", (image,))
        await self.manager.ensure(one, Wanted("app", image, "IfNotPresent", "app"), 0, self.on_state)
        await settle()

    def on_state(self, key: str, state: ImageState) -> None:
        pass

    def said(self) -> list[str]:
        return [message for _, _, message in self.events.emitted]

    def progress(self) -> list[str]:
        return [message for _, reason, message in self.events.emitted if reason == "PullProgress"]


async def test_a_long_pull_is_reported_by_events_and_on_request() -> None:
    world = World()
    web = pod()
    await world.pull(web)
    await world.clock.advance(4)
    assert world.content.asked == 0, "a pull of a moment is not looked at"
    for _ in range(20):
        world.content.there += 5 * MIB
        await world.clock.advance(5)
    assert world.progress()[:2] == [
        'Pulling image "r/web:1": 10 of 100 MiB, 1.0 MiB/s, about 90 s left',
        'Pulling image "r/web:1": 40 of 100 MiB, 1.0 MiB/s, about 60 s left',
    ]
    assert len(world.progress()) == 3
    await world.manager.refresh()
    assert world.manager.pulls(web.uid)["app"].done == 100 * MIB
    asked = world.content.asked
    world.go.set()
    await settle()
    await world.clock.advance(60)
    await world.manager.refresh()
    assert (world.manager.pulls(web.uid), world.content.asked) == ({}, asked), "nothing is asked when nothing is pulled"
    await world.manager.close()
    assert world.content.closed


async def test_a_runtime_without_the_api_is_asked_once() -> None:
    world = World()
    world.content.fail = PluginError("unknown service", code="UNIMPLEMENTED")
    web = pod()
    await world.pull(web)
    await world.clock.advance(120)
    await world.manager.refresh()
    assert (world.content.asked, world.progress()) == (1, [])
    assert world.manager.pulls(web.uid) == {"app": PullProgress()}
    await world.manager.close()


async def test_a_runtime_that_is_away_is_asked_again() -> None:
    world = World()
    world.content.fail = PluginError("connection refused", code="UNAVAILABLE")
    await world.pull(pod())
    await world.clock.advance(20)
    world.content.fail, world.content.there = None, MIB
    await world.clock.advance(5)
    assert world.progress() == ['Pulling image "r/web:1": 1.0 of 100 MiB']
    await world.manager.close()


async def test_a_request_is_answered_although_the_runtime_hangs() -> None:
    world = World(refresh_limit=0.01)
    web = pod()
    await world.pull(web)
    world.content.hangs = True
    async with asyncio.timeout(30):
        await world.manager.refresh()
        assert world.manager.pulls(web.uid) == {"app": PullProgress()}
        world.content.hangs = False
        await world.clock.advance(1)
        await world.manager.refresh()
    assert world.manager.pulls(web.uid)["app"].total == 100 * MIB
    await world.manager.close()


@pytest.mark.parametrize("parallel", [1, 2])
async def test_the_pull_of_the_most_urgent_pod_that_waits_is_next(parallel: int) -> None:
    world = World(parallel)
    priorities = {"first": 0, "second": 0, "low": 0, "urgent": 2000}
    pods = {name: pod(meta={"name": name, "uid": name}, priority=value) for name, value in priorities.items()}
    for name, one in pods.items():
        await world.pull(one, f"r/{name}:1")
    turns = {name: world.manager.pulls(name)["app"].turn for name in pods}
    expected = [0, 2, 3, 1] if parallel == 1 else [0, 0, 2, 1]
    assert list(turns.values()) == expected
    world.go.set()
    await settle()
    order = [what.removeprefix("r/").removesuffix(":1") for what in world.cri.done("pull_image")]
    assert order.index("urgent") == parallel
    await world.manager.close()


async def test_pulls_without_end_hold_up_nobody_elses() -> None:
    """The pods of one namespace name images of a registry that never comes to an end."""
    world = World(1, longest=0.3)
    for number in range(20):
        slow = pod(meta={"name": f"slow{number}", "uid": f"slow{number}", "namespace": "theirs"})
        await world.pull(slow, f"slow/{number}:1")
    other = pod(meta={"name": "web", "uid": "web", "namespace": "ours"})
    await world.pull(other, "r/web:1")
    assert world.manager.pulls("web")["app"].turn == 1
    await until(lambda: "r/web:1" in world.cri.done("pull_image"))
    assert len(world.cri.done("pull_image")) < 10
    await world.manager.close()


class NestedManifest(ImageContent):
    """A registry's manifest with a field that is nested deeper than Python's JSON decoder goes."""

    async def _streamed(self, method: str, fields: Mapping[str, Any]) -> list[Json]:
        return [{"data": b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"}]


async def test_a_deeply_nested_manifest_is_refused() -> None:
    with pytest.raises(PluginError, match="this is not an image manifest"):
        await NestedManifest("/run/c.sock").sizes("sha256:1")


class AnyManifest(ImageContent):
    """Has one manifest, of a size that its registry chose."""

    def __init__(self, size: int) -> None:
        super().__init__("unix:///nowhere")
        self.size = size

    async def _listed(self, filters: list[str]) -> list[Any]:
        return [{"digest": "sha256:a", "size": self.size, "labels": {}}]


@pytest.mark.parametrize(("size", "count"), [(3000, 1), (4 << 20, 1), (1 << 30, 0)])
async def test_a_manifest_of_any_size_is_not_read_into_memory(size: int, count: int) -> None:
    assert len(await AnyManifest(size).manifests("registry.example", "x")) == count
