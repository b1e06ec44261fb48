"""Which requests of the agent kubeAPIQPS limits: those for the Node, its Lease and Events never wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.build.base import Base, build_base
from agent.build.credentials import Credentials
from nodelib.kube.access import ClusterAccess
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock, settle
from tests.unit.agent.config.test_settings import parsed

PODS = "/api/v1/namespaces/ns/pods"


def base(folder: Path, api: FakeApiServer, clock: FakeClock, text: str) -> Base:
    (folder / "kubeconfig").touch()
    settings = parsed(folder, text, f"--kubeconfig={folder}/kubeconfig", f"--root-dir={folder}")
    return build_base(settings, clock, Credentials(ClusterAccess(api.url)))


async def test_only_the_other_requests_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    async with FakeApiServer() as api:
        made = base(tmp_path, api, clock, "kubeAPIQPS: 1\nkubeAPIBurst: 1\n")
        found = made.connections
        await found.api.get(PODS)
        waiting = asyncio.create_task(found.api.get(PODS))
        await settle()
        async with asyncio.timeout(20):
            for client in (found.unlimited, found.heartbeat) * 5:
                await client.get(PODS)
            made.events.emit({"metadata": {"name": "n1"}}, "Normal", "Starting", "now")
            await made.events.flush()
        assert [path for method, path in api.requests if method == "POST"] == ["/api/v1/namespaces/default/events"]
        assert not waiting.done()
        await clock.advance(1)
        await waiting
        await found.close()


async def test_nothing_waits_unless_it_is_asked_for(tmp_path: Path) -> None:
    clock = FakeClock()
    async with FakeApiServer() as api:
        found = base(tmp_path, api, clock, "").connections
        assert found.unlimited is found.api
        asked = [asyncio.create_task(found.api.get(PODS)) for _ in range(200)]
        await asyncio.gather(*asked)
        assert not clock.sleeping
        await cancel_and_wait(*asked)
        await found.close()


@pytest.mark.parametrize("limit", ["", "kubeAPIQPS: 5\n"])
async def test_every_watch_obeys_the_gate_of_streaming_lists(tmp_path: Path, limit: str) -> None:
    api, clock = FakeApiServer(), FakeClock()
    for text, on in ((limit, True), (f"{limit}featureGates: {{WatchListClient: false}}\n", False)):
        found = base(tmp_path, api, clock, text).connections
        assert {found.api.streaming_lists, found.unlimited.streaming_lists} == {on}


@pytest.mark.parametrize("text", ["", "kubeAPIQPS: 5\n"])
async def test_new_credentials_reach_every_connection_once(tmp_path: Path, text: str) -> None:
    async with FakeApiServer() as api:
        found = base(tmp_path, api, FakeClock(), text).connections
        clients = {found.api, found.unlimited, found.heartbeat}
        for client in clients:
            await client.get(PODS)
        pools = {client: client._pool for client in clients}
        await found.reconnect()
        for client in clients:
            await client.get(PODS)
            assert client._pool is not pools[client]
        await found.close()
