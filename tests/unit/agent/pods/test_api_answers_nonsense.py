"""The pod workers behind an API server that answers nonsense: no pod is ended, none of another node is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import settle
from tests.fakes.nonsense import LISTS, WATCHES, Nonsense
from tests.fakes.pod_world import World
from tests.waiting import until

PODS = "/api/v1/pods"
# The rest of the table is in tests/unit/nodelib: what differs here is only what is done about it.
KINDS = ["a page", "nothing", "an empty object", "a list of something else", "half a list", "a list that ends too soon",
         "objects that were not asked for", "pages without an end", "a page 404", "no answer"]  # fmt: skip


class Node:
    """A node in memory whose pods come from a real list and watch."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api, self.client, self.world = api, client, World()

    async def start(self) -> None:
        await self.world.start_agent()
        self.uid = self.world.create()
        raw = self.world.api.pods[self.uid]
        raw["spec"]["nodeName"] = "n1"
        await self.api.put(f"{PODS}/{raw['metadata']['name']}", raw)
        await self.world.until(self.world.is_ready)
        self.task = asyncio.create_task(self.watch().run())
        await until(lambda: self.watches() == 1)

    def watch(self) -> Reflector:
        def on_change(kind: str, item: Json, old: Json | None) -> None:
            self.world.workers.on_pod(kind, item, old)

        params = {"fieldSelector": "spec.nodeName=n1"}
        return Reflector(self.client, PODS, name="pods", params=params, on_change=on_change)

    def watches(self) -> int:
        return len([path for _, path in self.api.requests if "watch=true" in path])


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=2)
        made = Node(api, client)
        await made.start()
        yield made
        await cancel_and_wait(made.task)
        await made.world.kill_agent()
        await client.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["list", "watch"])
async def test_running_pods_run_on(node: Node, kind: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    running = node.world.cri.running()
    assert running

    def nonsense(request: web.Request) -> Nonsense | None:
        if "watch" in request.query:
            return WATCHES["an event of another kind"] if where == "watch" else WATCHES["an event that says so"]
        return LISTS[kind]

    node.api.nonsense = nonsense
    before = len(node.api.requests)
    node.api.drop_watches()
    await until(lambda: len(node.api.requests) >= before + 4, seconds=60)
    for _ in range(8):
        await node.world.clock.advance(10)
        await settle()
    assert node.world.cri.running() == running
    assert node.uid in node.world.api.pods
    assert not [record for record in caplog.records if "the handler of" in record.message]
