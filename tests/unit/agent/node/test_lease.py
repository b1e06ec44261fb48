"""The heartbeat against an API server in memory that fails in its ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.common.work.observable import Observable
from agent.node.work.lease import LeaseController
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock
from tests.waiting import until

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODE: Json = {"metadata": {"name": "n1", "uid": "u1"}}


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as found:
        await found.put(f"{PATH}/other", {"metadata": {"name": "other", "namespace": "kube-node-lease"}, "spec": {}})
        yield found


@pytest.fixture
async def client(api: FakeApiServer) -> AsyncIterator[KubeClient]:
    found = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=2)
    yield found
    await found.close()


def keeper(client: KubeClient, clock: FakeClock) -> LeaseController:
    return LeaseController(client, "n1", Observable[Json | None](NODE), duration=40, clock=clock)


async def test_created_then_renewed_without_another_read(api: FakeApiServer, client: KubeClient) -> None:
    clock = FakeClock()
    found = keeper(client, clock)
    await found.renew()
    first = api.objects[f"{PATH}/n1"]["spec"]
    assert first == {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}
    reads = len([one for one in api.requests if one[0] == "GET"])
    await clock.advance(10)
    await found.renew()
    assert api.objects[f"{PATH}/n1"]["spec"]["renewTime"] == "2026-01-01T00:00:10.000000Z"
    assert len([one for one in api.requests if one[0] == "GET"]) == reads


async def test_a_lease_that_somebody_else_touched_is_taken_again(api: FakeApiServer, client: KubeClient) -> None:
    clock = FakeClock()
    found = keeper(client, clock)
    task = asyncio.create_task(found.run())
    await until(lambda: f"{PATH}/n1" in api.objects)
    await api.put(f"{PATH}/n1", {**api.objects[f"{PATH}/n1"], "spec": {"holderIdentity": "x", "extra": 1}})
    await until(lambda: api.objects[f"{PATH}/n1"]["spec"]["holderIdentity"] == "n1", clock=clock)
    assert api.objects[f"{PATH}/n1"]["spec"]["extra"] == 1
    task.cancel()


async def test_healthy_only_within_the_duration_of_the_last_heartbeat(api: FakeApiServer, client: KubeClient) -> None:
    clock = FakeClock()
    found = keeper(client, clock)
    assert not found.healthy()
    await found.renew()
    assert found.healthy()
    await clock.advance(41)
    assert not found.healthy()


async def test_an_api_server_that_is_away_is_not_reported_as_a_problem() -> None:
    clock = FakeClock()
    async with FakeApiServer() as api:
        await api.put(f"{PATH}/other", {"metadata": {"name": "other", "namespace": "kube-node-lease"}, "spec": {}})
        client = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=2)
        found = keeper(client, clock)
        assert found.problem() == ""  # nothing yet: a control plane may be waiting for this very node
        task = asyncio.create_task(found.run())
        await until(lambda: f"{PATH}/n1" in api.objects)
        api.fail_with = [403] * 1000
        await until(lambda: bool(found.problem()), clock=clock)
        assert "no heartbeat was taken for" in found.problem()
        api.fail_with = []
        await until(lambda: not found.problem(), clock=clock)
    await until(lambda: not found.healthy(), clock=clock)
    await until(lambda: not found.problem(), clock=clock)
    task.cancel()
    await client.close()


async def test_failures_are_retried_and_reported(api: FakeApiServer, client: KubeClient) -> None:
    clock = FakeClock()
    api.fail_with = [500, 503]
    found = keeper(client, clock)
    task = asyncio.create_task(found.run())
    await until(lambda: bool(found.last_error))
    await until(lambda: f"{PATH}/n1" in api.objects, clock=clock)
    await until(lambda: not found.last_error)
    assert clock.monotonic() < 10
    task.cancel()


async def test_nothing_before_the_node_is_registered(api: FakeApiServer, client: KubeClient) -> None:
    clock, own_node = FakeClock(), Observable[Json | None](None)
    task = asyncio.create_task(LeaseController(client, "n1", own_node, duration=40, clock=clock).run())
    await clock.advance(5)
    assert api.requests == []
    own_node.set(NODE)
    await until(lambda: f"{PATH}/n1" in api.objects)  # the clock stands still: the registration has woken it
    assert api.objects[f"{PATH}/n1"]["metadata"]["ownerReferences"][0]["uid"] == "u1"
    task.cancel()
