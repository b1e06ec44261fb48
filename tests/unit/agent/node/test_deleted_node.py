"""A Node that somebody deletes (`kubectl delete node`) is registered again by its agent, as the same network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from agent.node.model import NodePlace, NodePolicy
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.node import NodeManager
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.unit.agent.node.test_node_work import Events, Runtime, TheMachine, addresses

NODE = "/api/v1/nodes/n"
RANGES = ["10.244.1.0/24"]


class Bench:
    """The keeper with all its tasks, against an API server that gives the first Node its range."""

    def __init__(self, server: FakeApiServer, client: KubeClient, *, own_network: bool) -> None:
        self.server, self.clock = server, FakeClock()
        self.places: list[NodePlace] = []
        runtime = Runtime()
        parts: list[Any] = [client, runtime, runtime, TheMachine(), Events(), self.clock, addresses]
        self.keeper = NodeManager(
            NodeEdges(*cast(Any, parts)),
            NodeHooks(on_nodes=self._seen if own_network else None),
            NodePolicy(name="n", labels={}),
            times=NodeTimes(answer=1),
        )

    def _seen(self, places: list[NodePlace]) -> None:
        self.places = places

    @property
    def there(self) -> Json | None:
        return self.server.objects.get(NODE)

    @property
    def uid(self) -> str:
        return str(self.there["metadata"]["uid"]) if self.there else ""

    async def until(self, holds: Callable[[], object], what: str, step: float = 0.2) -> None:
        """Let time pass until it holds."""
        async with asyncio.timeout(60):
            while not holds():
                await self.clock.advance(step)
                await asyncio.sleep(0.005)
        assert holds(), what

    async def delete(self) -> float:
        """Delete the Node, and wait for the next one. Returns how long it was gone, in seconds of the clock."""
        before, began = self.uid, self.clock.monotonic()
        await self.server.remove(NODE)
        await self.until(lambda: self.uid not in ("", before), "it is registered again")
        await self.until(lambda: self.keeper.uid == self.uid, "the agent knows the new one")
        return self.clock.monotonic() - began


@asynccontextmanager
async def running(*, own_network: bool = True) -> AsyncIterator[Bench]:
    async with FakeApiServer() as server:
        client = KubeClient(ClusterAccess(server.url), user_agent="tests")
        bench = Bench(server, client, own_network=own_network)
        tasks = [asyncio.create_task(work()) for work in bench.keeper.tasks().values()]
        try:
            await bench.until(lambda: bench.there, "it is registered")
            await server.put(NODE, {**(bench.there or {}), "spec": {"podCIDR": RANGES[0], "podCIDRs": RANGES}})
            await bench.until(lambda: bench.keeper.node and bench.keeper.node["spec"], "the agent knows its range")
            yield bench
        finally:
            await cancel_and_wait(*tasks)
            await client.close()


async def test_a_deleted_node_is_registered_again_with_its_status_and_its_range() -> None:
    async with running() as bench:
        assert await bench.delete() < 10
        assert bench.there and bench.there["spec"] == {"podCIDR": RANGES[0], "podCIDRs": RANGES}
        await bench.until(lambda: bench.there and bench.there["status"]["conditions"], "its status is there")
        assert bench.keeper.node == bench.there


async def test_a_range_that_another_node_has_by_now_is_left_to_it() -> None:
    async with running() as bench:
        other = {"metadata": {"name": "other"}, "spec": {"podCIDRs": RANGES}, "status": {}}
        await bench.server.put("/api/v1/nodes/other", other)
        await bench.until(lambda: [one.name for one in bench.places] == ["n", "other"], "the other one is known")
        await bench.delete()
        assert bench.there and "podCIDR" not in bench.there["spec"]


async def test_a_network_that_is_not_ours_gets_its_range_from_whoever_gives_it() -> None:
    async with running(own_network=False) as bench:
        await bench.delete()
        assert bench.there and "podCIDR" not in bench.there["spec"]


async def test_who_deletes_it_again_and_again_is_not_fought() -> None:
    async with running() as bench:
        gone = [await bench.delete() for _ in range(5)]
        assert gone[0] < 10
        assert gone[-1] >= 16
        await bench.clock.advance(1000)
        assert await bench.delete() < 10


@pytest.mark.parametrize("kind", ["DELETED", "MODIFIED"])
async def test_late_news_of_the_deleted_one_change_nothing(kind: str) -> None:
    async with running() as bench:
        old = bench.there or {}
        await bench.delete()
        fresh = bench.keeper.node
        bench.keeper._on_own_node(kind, old, old)
        assert bench.keeper.node == fresh
