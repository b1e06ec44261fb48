"""ConfigMaps and Secrets that are asked for instead of watched (the strategies Get and Cache)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agent.build.volumes import object_store
from agent.volumes.model.detection import ChangeDetection
from agent.volumes.model.sources import CONFIG_MAP
from agent.volumes.work.polled_objects import PolledObjects
from agent.volumes.work.watched_objects import ObjectKey, WatchedObjects
from nodelib.clock import SystemClock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock
from tests.fakes.pod_api import FakePodApi

KEY = ObjectKey(CONFIG_MAP, "shop", "settings")
PATH = "/api/v1/namespaces/shop/configmaps/settings"


class World:
    """A fake API server and a client of it; `objects` keep an answer for `ttl` seconds."""

    def __init__(self, api: FakePodApi, client: KubeClient) -> None:
        self.api, self.client, self.clock = api, client, FakeClock()
        self.notified: list[str] = []

    def objects(self, ttl: Callable[[], float] | None) -> PolledObjects:
        return PolledObjects(self.client, self.clock, self.notified.append, period=60, ttl=ttl, chance=lambda: 0.5)

    def asked(self) -> int:
        assert not [path for _, path in self.api.requests if "watch" in path]
        return len([path for _, path in self.api.requests if "configmaps/settings" in path])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakePodApi(SystemClock()) as api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        made = World(api, client)
        await api.config_map("settings", {"a": "1"})
        api.requests.clear()
        yield made
        await client.close()


def data(found: Json | None) -> object:
    return found and found["data"]


async def test_get_asks_each_time(world: World) -> None:
    objects = world.objects(None)
    assert data(await objects.get("u1", KEY)) == {"a": "1"}
    await world.api.config_map("settings", {"a": "2"})
    before = world.asked()
    assert data(await objects.get("u1", KEY)) == {"a": "2"}
    assert world.asked() == before + 1


async def test_cache_asks_again_after_its_time_and_for_a_new_pod(world: World) -> None:
    objects = world.objects(lambda: 30.0)
    assert data(await objects.get("u1", KEY)) == {"a": "1"}
    await world.api.config_map("settings", {"a": "2"})
    await world.clock.advance(29)
    assert data(await objects.get("u1", KEY)) == {"a": "1"}
    assert data(await objects.get("u2", KEY)) == {"a": "2"}, "a new pod must not start from what an earlier one read"
    await world.api.config_map("settings", {"a": "3"})
    await world.clock.advance(31)
    assert data(await objects.get("u1", KEY)) == {"a": "3"}
    await world.api.remove(PATH)
    await world.clock.advance(31)
    assert await objects.get("u1", KEY) is None


async def test_cache_keeps_what_it_has_while_the_server_fails_and_get_does_not(world: World) -> None:
    kept, asking = world.objects(lambda: 1.0), world.objects(None)
    await kept.get("u1", KEY)
    await asking.get("u1", KEY)
    world.api.fail_with = [500] * 3
    await world.clock.advance(5)
    assert data(await kept.get("u1", KEY)) == {"a": "1"}
    for objects, user in ((asking, "u1"), (kept, "u2")):
        with pytest.raises(Temporary, match="configmaps shop/settings"):
            await objects.get(user, KEY)


async def test_users_are_notified_by_the_clock_until_they_are_gone(world: World) -> None:
    objects = world.objects(None)
    polling = asyncio.create_task(objects.run())
    try:
        await objects.get("u1", KEY)
        await world.clock.advance(74)
        assert world.notified == []
        await world.clock.advance(2)
        assert world.notified == ["u1"], "60 s, and half of the half that they are spread over"
        await world.clock.advance(75)
        assert world.notified == ["u1"] * 2
        objects.drop_user("u1")
        await world.clock.advance(300)
        assert world.notified == ["u1"] * 2
    finally:
        await cancel_and_wait(polling)


@pytest.mark.parametrize(
    ("strategy", "annotation", "kind", "later"),
    [
        pytest.param("Watch", "", WatchedObjects, 0, id="watch"),
        pytest.param("Get", "", PolledObjects, 1, id="get"),
        pytest.param("Cache", "", PolledObjects, 0, id="cache: a minute"),
        pytest.param("Cache", "0", PolledObjects, 1, id="cache: as the node controller says"),
        pytest.param("Cache", "x", PolledObjects, 0, id="cache: nonsense is a minute"),
    ],
)
async def test_the_strategy_chooses(
    world: World, strategy: str, annotation: str, kind: type[object], later: int
) -> None:
    node: Json = {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": annotation}}}
    store = object_store(
        world.client, ChangeDetection(strategy), clock=world.clock, notify=print, own_node=lambda: node
    )
    assert type(store) is kind
    if kind is PolledObjects:
        await store.get("u1", KEY)
        await store.get("u1", KEY)
        assert world.asked() == 1 + later
    await store.close()
