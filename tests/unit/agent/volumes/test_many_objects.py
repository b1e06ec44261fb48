"""Pods that name more objects than a node can watch: whoever may create pods in one namespace holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from agent.containers.plan import env
from agent.volumes.model.sources import CONFIG_MAP, SECRET, ObjectRef, TokenRequest
from agent.volumes.plan import volumes
from agent.volumes.plan.sizes import check_references
from agent.volumes.work.pod_objects import PodObjects
from agent.volumes.work.watch_places import WatchPlaces
from agent.volumes.work.watched_objects import ObjectKey, WatchedObjects
from nodelib.clock import SystemClock
from nodelib.errors import Invalid, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.turns import Turns
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock
from tests.fakes.pod_api import FakePodApi
from tests.waiting import until


class BusyApi(FakePodApi):
    """Takes a moment for each answer. `most`: the most requests at once, watches aside; `watches`: that are open."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.now = self.most = self.watches = 0
        self.slow: set[str] = set()
        self.answered: list[str] = []

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            self.watches += 1
            try:
                return await super()._handle(request)
            finally:
                self.watches -= 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.2 if request.path.split("/")[-1] in self.slow else 0.002)
            return await super()._handle(request)
        finally:
            self.now -= 1
            self.answered.append(request.path)


@pytest.fixture
async def api() -> AsyncIterator[BusyApi]:
    async with BusyApi() as made:
        yield made


@pytest.fixture
async def client(api: BusyApi) -> AsyncIterator[KubeClient]:
    made = KubeClient(ClusterAccess(server=api.url), user_agent="test", turns=Turns(most=6, of_one=4))
    yield made
    await made.close()


def keys(namespace: str, count: int) -> list[ObjectKey]:
    return [ObjectKey(CONFIG_MAP, namespace, f"x{number}") for number in range(count)]


async def test_few_requests_at_a_time_and_each_namespace_has_its_turns(api: BusyApi, client: KubeClient) -> None:
    await api.put("/api/v1/namespaces/shop/configmaps/settings", {"metadata": {"name": "settings"}})
    api.slow = {one.name for one in keys("evil", 40)}
    objects = WatchedObjects(client, SystemClock(), lambda uid: None)
    evil = [asyncio.create_task(objects.get("u1", key)) for key in keys("evil", 40)]
    await until(lambda: api.now == 4)
    before = len(api.answered)
    assert await objects.get("u2", ObjectKey(CONFIG_MAP, "shop", "settings")) is not None
    assert len(api.answered) - before < 8, "it waited for the objects of another namespace"
    assert await asyncio.gather(*evil) == [None] * 40
    assert api.most <= 6
    await objects.close()


async def test_watches_are_bounded_and_the_rest_is_looked_at_now_and_then(
    api: BusyApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volumes.plan.watches.LOOK", 0.2)
    changed: list[str] = []
    objects = WatchedObjects(client, SystemClock(), changed.append, WatchPlaces(most=8, of_one=5))
    assert await asyncio.gather(*(objects.get("u1", key) for key in keys("evil", 30))) == [None] * 30
    await until(lambda: api.watches == 5)
    await asyncio.gather(*(objects.get("u2", key) for key in keys("shop", 2)))
    await until(lambda: api.watches == 7)
    for key in keys("evil", 30):
        await api.put(f"{key.collection}/{key.name}", {"metadata": {"name": key.name, "namespace": "evil"}})
    await until(lambda: changed.count("u1") == 30)
    assert api.watches == 7
    found = await asyncio.gather(*(objects.get("u1", key) for key in keys("evil", 30)))
    assert None not in found
    objects.drop_user("u1")
    await objects.close()


async def test_an_object_that_waits_gets_the_watch_of_one_that_goes(
    api: BusyApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volumes.plan.watches.LOOK", 0.05)
    monkeypatch.setattr("agent.volumes.plan.watches.LINGER", 0.01)
    objects = WatchedObjects(client, SystemClock(), lambda uid: None, WatchPlaces(most=1, of_one=1))
    first, second = keys("shop", 2)
    await objects.get("u1", first)
    await until(lambda: api.watches == 1)
    await objects.get("u2", second)
    objects.drop_user("u1")
    await until(lambda: any("x1" in path and "watch" in path for _, path in api.requests))
    await objects.close()


async def test_what_is_looked_at_and_cannot_change_is_not_looked_at_again(
    api: BusyApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volumes.plan.watches.LOOK", 0.01)
    await api.put("/api/v1/namespaces/shop/configmaps/x0", {"metadata": {"name": "x0"}, "immutable": True})
    objects = WatchedObjects(client, SystemClock(), lambda uid: None, WatchPlaces(most=0, of_one=0))
    assert await objects.get("u1", keys("shop", 1)[0]) is not None
    await until(lambda: not any(one.get_name().startswith("watch configmaps shop/x0") for one in asyncio.all_tasks()))
    assert len(api.requests) <= 2
    await objects.close()


def many(kind: str, count: int) -> Json:
    """A pod's spec with so many sources of a kind."""
    made: dict[str, list[Json]] = {
        "configMap": [{"configMap": {"name": f"x{one}", "optional": True}} for one in range(count)],
        "secret": [{"secret": {"name": f"x{one}"}} for one in range(count)],
        "token": [{"serviceAccountToken": {"path": f"t{one}", "audience": f"a{one}"}} for one in range(count)],
        "certificate": [
            {"podCertificate": {"signerName": "example.com/s", "keyType": "ED25519", "keyPath": f"k{one}"}}
            for one in range(count)
        ],
        "bundle": [{"clusterTrustBundle": {"name": f"b{one}", "path": f"b{one}"}} for one in range(count)],
    }
    if kind == "claim":
        names = ({"name": f"v{one}", "persistentVolumeClaim": {"claimName": f"x{one}"}} for one in range(count))
        return {"volumes": list(names)}
    return {"volumes": [{"name": "v", "projected": {"sources": made[kind]}}]}


@pytest.mark.parametrize(
    "kind, most",
    [("configMap", 1000), ("secret", 1000), ("token", 100), ("certificate", 100), ("bundle", 100), ("claim", 1000)],
)
def test_a_pod_that_names_too_much_is_refused(kind: str, most: int) -> None:
    fits, over = pod(**many(kind, most)), pod(**many(kind, most + 1))
    check_references(fits, volumes.source_refs(fits))
    with pytest.raises(Invalid, match=f"more than {most}"):
        check_references(over, volumes.source_refs(over))


def test_so_is_a_container_by_its_environment() -> None:
    names = [{"configMapRef": {"name": f"x{one}", "optional": True}} for one in range(1001)]
    assert len(env.references(container(envFrom=names[:1000]))) == 1000
    with pytest.raises(Invalid, match="more than 1000"):
        env.references(container(envFrom=names))


async def test_what_a_pod_names_in_all_places_counts_together(api: BusyApi, client: KubeClient) -> None:
    objects = PodObjects(client, FakeClock(), lambda uid: None, most=(3, 5))
    for name in ("a", "b", "c", "a"):
        assert await objects.object(pod(), ObjectRef(CONFIG_MAP, name)) is None
    with pytest.raises(Permanent, match="more than 3 ConfigMaps and Secrets"):
        await objects.object(pod(), ObjectRef(SECRET, "d"))
    other = pod(meta={"uid": "u-2"})
    for name in ("d", "e", "a"):
        await objects.object(other, ObjectRef(CONFIG_MAP, name))
    third = pod(meta={"uid": "u-3"})
    with pytest.raises(Temporary, match="namespace shop name more than 5"):
        await objects.object(third, ObjectRef(CONFIG_MAP, "f"))
    assert await objects.object(pod(meta={"uid": "u-4", "namespace": "other"}), ObjectRef(CONFIG_MAP, "f")) is None
    objects.drop_pod("u-2")
    assert await objects.object(third, ObjectRef(CONFIG_MAP, "f")) is None
    await objects.close()


async def test_tokens_of_a_pod_are_bounded(api: BusyApi, client: KubeClient) -> None:
    objects = PodObjects(client, FakeClock(), lambda uid: None)
    wanted = [TokenRequest(f"a{number}", 3600) for number in range(101)]
    await asyncio.gather(*(objects.token(pod(), one) for one in wanted[:100]))
    assert api.most <= 4
    with pytest.raises(Permanent, match="more than 100 tokens"):
        await objects.token(pod(), wanted[100])
    assert await objects.token(pod(), wanted[0])
    await objects.close()


async def test_a_service_account_that_is_gone_is_asked_about_now_and_then(api: BusyApi, client: KubeClient) -> None:
    """Its pods were told again every second that their tokens have to be renewed, and asked eight times for each."""
    clock = FakeClock()
    changed: list[str] = []
    objects = PodObjects(client, clock, changed.append)
    wanted = [TokenRequest(f"a{number}", 600) for number in range(20)]
    await asyncio.gather(*(objects.token(pod(), one) for one in wanted))
    await clock.advance(500)
    assert objects._tokens.due() == {pod().uid}
    api.token_failures = [404] * 1000
    await asyncio.gather(*(objects.token(pod(), one) for one in wanted))
    assert len(api.token_failures) == 1000 - len(wanted), "one question for each token that was given before"
    await clock.advance(200)
    assert objects._tokens.due() == {pod().uid}
    refused = await asyncio.gather(*(objects.token(pod(), one) for one in wanted), return_exceptions=True)
    assert all(isinstance(one, Temporary) for one in refused)
    assert not objects._tokens.due() and objects._tokens.next_due() == 3600
    api.token_failures = []
    assert await objects.token(pod(), wanted[0])
    await clock.advance(500)
    assert objects._tokens.due() == {pod().uid}
    objects.drop_pod(pod().uid)
    await objects.close()
