"""The watch of ClusterNetworkPolicies against an API server that has their CRD, gets it, loses it, or refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.definition import CRDS
from nodelib.tasks import cancel_and_wait
from policy.watches import cluster_policies
from policy.watches.cluster_policies import NODES, POLICIES, VERSION, ClusterWatch
from tests.builders.cluster_policies import cluster_policy, ingress, node
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.nonsense import Nonsense
from tests.waiting import until

CRD = f"{CRDS}/clusternetworkpolicies.policy.networking.k8s.io"


def crd(version: str = VERSION, established: str = "True") -> Json:
    return {
        "metadata": {"name": CRD.rpartition("/")[2]},
        "spec": {"versions": [{"name": version, "served": True}]},
        "status": {"conditions": [{"type": "Established", "status": established}]},
    }


class World:
    """The watch, and what it has told."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api = api
        self.policies: dict[str, Json] = {}
        self.nodes: set[str] = set()
        self.watch = ClusterWatch(client, on_policy=self._on_policy, on_node=self._on_node)

    def _on_policy(self, kind: str, obj: Json) -> None:
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            del self.policies[name]
        else:
            self.policies[name] = dict(obj)

    def _on_node(self, kind: str, obj: Json) -> None:
        (self.nodes.discard if kind == "DELETED" else self.nodes.add)(obj["metadata"]["name"])

    def asked(self, path: str) -> int:
        return sum(one.partition("?")[0] == path for _, one in self.api.requests)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test")
        one = World(api, client)
        task = asyncio.create_task(one.watch.run())
        yield one
        assert not task.done(), task
        await cancel_and_wait(task)
        await client.close()


def served(crds: Callable[[], bool]) -> Callable[[web.Request], Nonsense | None]:
    """404 for the policies as long as the API server does not serve them."""

    async def not_served(_: web.Request, __: bytes) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")

    return lambda request: not_served if request.path == POLICIES and not crds() else None


async def test_without_the_crd_nothing_is_asked_and_nothing_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await asyncio.wait_for(world.watch.ready.wait(), 5)
    assert world.asked(POLICIES) == world.asked(NODES) == 0
    assert not [one for one in caplog.records if one.name.startswith(("policy", "nodelib"))]
    assert world.watch.last_error == ""


async def test_a_crd_that_comes_is_followed_and_one_that_goes_takes_its_policies_along(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    there = False
    world.api.nonsense = served(lambda: there)
    await asyncio.wait_for(world.watch.ready.wait(), 5)
    await world.api.put(f"{NODES}/n1", node("n1", "192.0.2.1"))
    await world.api.put(CRD, crd(established="False"))
    await world.api.put(CRD, crd())
    with caplog.at_level(logging.WARNING):
        await until(lambda: world.asked(POLICIES) >= 2)  # established, and served a moment later
        there = True
        await world.api.put(f"{POLICIES}/p", cluster_policy("p", ingress=[ingress("Deny")]))
        await until(lambda: "p" in world.policies and world.nodes == {"n1"})
    assert not caplog.records, "the time between the two is no failure"
    assert world.policies["p"]["spec"]["tier"] == "Admin"
    await world.api.remove(CRD)
    await until(lambda: not world.policies)
    await world.api.put(CRD, crd())
    await until(lambda: "p" in world.policies)


async def test_it_is_ready_when_the_policies_have_been_told() -> None:
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        await api.put(CRD, crd())
        await api.put(f"{POLICIES}/p", cluster_policy("p"))
        one = World(api, client)
        task = asyncio.create_task(one.watch.run())
        await asyncio.wait_for(one.watch.ready.wait(), 5)
        assert "p" in one.policies
        await cancel_and_wait(task)


async def test_a_crd_of_another_version_is_not_followed(world: World) -> None:
    await world.api.put(CRD, crd("v1alpha1"))
    await asyncio.wait_for(world.watch.ready.wait(), 5)
    await until(lambda: world.asked(CRDS) >= 2)  # for the right to list it, and for its list and watch
    assert world.asked(POLICIES) == 0


async def test_rights_that_come_a_little_later_are_waited_for_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in a new cluster, where daemons start before the API server has their roles."""
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        await api.put(CRD, crd())
        await api.put(f"{POLICIES}/p", cluster_policy("p"))
        api.fail_with = [403] * 3
        one = World(api, client)
        with caplog.at_level(logging.WARNING):
            task = asyncio.create_task(one.watch.run())
            await asyncio.wait_for(one.watch.ready.wait(), 10)
        assert "p" in one.policies, "it is ready when the policies have been told, and not before"
        assert not caplog.records
        await cancel_and_wait(task)


async def test_without_the_right_network_policies_do_not_wait_and_the_error_says_which_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_policies, "_PATIENCE", 0.5)
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        await api.put(CRD, crd())
        await api.put(f"{POLICIES}/p", cluster_policy("p"))
        api.fail_with = [403] * 8
        one = World(api, client)
        with caplog.at_level(logging.WARNING):
            task = asyncio.create_task(one.watch.run())
            await asyncio.wait_for(one.watch.ready.wait(), 5)
            assert "customresourcedefinitions" in one.watch.last_error and not one.policies
            await until(lambda: "p" in one.policies)
        assert sum("may not list" in record.message for record in caplog.records) == 1, "said once"
        await until(lambda: one.watch.last_error == "")
        with contextlib.suppress(asyncio.CancelledError):
            await cancel_and_wait(task)
