"""The node's status with a runtime that takes calls and never answers them (frozen, out of memory, a stuck disk)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from agent.common.model.pods import ImageFacts
from agent.node.model import MachineFacts, NodePolicy
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.node import NodeManager
from nodelib.json_values import Json
from tests.fakes.clock import FakeClock


class Runtime:
    """Answers until it is frozen; of its status after `takes` seconds."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.frozen, self.takes, self._clock = False, 0.0, clock or FakeClock()

    async def status(self) -> Json:
        await self._answer()
        if self.takes:
            await self._clock.sleep(self.takes)
        conditions = [{"type": kind, "status": True} for kind in ("RuntimeReady", "NetworkReady")]
        return {"status": {"conditions": conditions}}

    async def version(self) -> Json:
        return {"runtime_name": "containerd", "runtime_version": "v2"}

    async def list_images(self) -> tuple[ImageFacts, ...]:
        await self._answer()
        return (ImageFacts(id="i", repo_tags=("pause:1",), size=1),)

    async def image_fs_info(self) -> list[Json]:
        return []

    async def _answer(self) -> None:
        if self.frozen:
            await asyncio.Event().wait()


class TheMachine:
    def facts(self) -> MachineFacts:
        return MachineFacts("m", "s", "b", "6.1", "Linux", "amd64", 2, 1 << 30, 1 << 30, 1000)


class Client:
    """The API: takes the Node and every patch of its status."""

    def __init__(self) -> None:
        self.patches: list[Json] = []

    async def post(self, path: str, body: Json) -> Json:
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}

    async def patch(self, path: str, body: Json, kind: str) -> Json:
        self.patches.append(body)
        metadata = {"name": "n", "uid": "u", "resourceVersion": str(len(self.patches) + 1)}
        return {"metadata": metadata, "status": body.get("status", {})}


class Events:
    def emit(self, *_: object, **__: object) -> None:
        return


async def addresses() -> tuple[str, ...]:
    return ("10.0.0.1",)


@pytest.fixture
def bench() -> tuple[NodeManager, Runtime, Client, FakeClock]:
    clock = FakeClock()
    runtime, client = Runtime(clock), Client()
    parts: list[Any] = [client, runtime, runtime, TheMachine(), Events(), clock, addresses]
    keeper = NodeManager(
        NodeEdges(*cast(Any, parts)),
        NodeHooks(),
        NodePolicy(name="n", labels={}),
        times=NodeTimes(answer=0.05),
    )
    return keeper, runtime, client, clock


async def test_a_frozen_runtime_is_reported(bench: tuple[NodeManager, Runtime, Client, FakeClock]) -> None:
    keeper, runtime, _, clock = bench
    watch = asyncio.create_task(keeper.watch.run())
    await clock.advance(1)
    assert keeper.runtime.problems == ()
    runtime.frozen = True
    seen: list[tuple[str, ...]] = []
    for seconds in (28, 5):
        await clock.advance(seconds)
        seen.append(keeper.runtime.problems)
    assert seen == [(), ("container runtime is down: no answer in 25 s",)]
    watch.cancel()


async def test_a_slow_runtime_is_not_down(bench: tuple[NodeManager, Runtime, Client, FakeClock]) -> None:
    """Upstream: the last answer must not be older than 30 s (maxWaitForContainerRuntime), however long it took."""
    keeper, runtime, _, clock = bench
    watch = asyncio.create_task(keeper.watch.run())
    await clock.advance(1)
    runtime.takes = 20.0
    for _ in range(60):
        await clock.advance(5)
        assert keeper.runtime.problems == ()
    watch.cancel()


async def test_the_status_does_not_wait_for_a_list_of_images(
    bench: tuple[NodeManager, Runtime, Client, FakeClock],
) -> None:
    keeper, runtime, client, clock = bench
    await keeper.register()
    runtime.frozen = True
    await clock.advance(60)  # the list is old
    await asyncio.wait_for(keeper.sync(), 10)
    assert client.patches[-1]["status"]["conditions"][-1]["type"] == "Ready"


async def test_a_label_of_the_platform_that_was_changed_is_repaired_with_the_next_status(
    bench: tuple[NodeManager, Runtime, Client, FakeClock],
) -> None:
    keeper, _, client, _ = bench
    await keeper.register()
    await keeper.sync()
    assert keeper.node is not None
    keeper.node["metadata"]["labels"] = {"kubernetes.io/os": "dummy", "kubernetes.io/arch": "amd64"}
    await keeper.sync()
    assert client.patches[-1]["metadata"] == {"labels": {"kubernetes.io/os": "linux"}}
    keeper.node["metadata"]["labels"] = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    await keeper.sync()
    assert "metadata" not in client.patches[-1]


async def test_a_node_of_a_cluster_that_was_restored_is_the_one_that_counts(
    bench: tuple[NodeManager, Runtime, Client, FakeClock],
) -> None:
    """Its versions are lower than those that the agent has seen: taints and labels of it were not seen for hours."""
    keeper, _, _, clock = bench
    await keeper.register()
    assert keeper.node is not None
    newest = {**keeper.node, "metadata": {**keeper.node["metadata"], "resourceVersion": "900"}}
    keeper._on_own_node("MODIFIED", newest, keeper.node)
    late = {**newest, "metadata": {**newest["metadata"], "resourceVersion": "500", "labels": {"a": "b"}}}
    keeper._on_own_node("MODIFIED", late, newest)
    assert keeper.node is newest, "the watch is behind our own patch"
    await clock.advance(120)
    keeper._on_own_node("MODIFIED", late, newest)
    assert keeper.node is late
