"""Single-object watches, tokens and the rest of what pods need from the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.volumes.model.sources import CONFIG_MAP, SECRET, ObjectRef, TokenRequest
from agent.volumes.work.pod_objects import PodObjects
from agent.volumes.work.tokens import TokenCache
from agent.volumes.work.watched_objects import ObjectKey, WatchedObjects
from nodelib.clock import SystemClock
from nodelib.errors import Temporary
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import pod
from tests.fakes.clock import FakeClock
from tests.fakes.pod_api import FakePodApi
from tests.waiting import until

KEY = ObjectKey(CONFIG_MAP, "shop", "settings")
PATH = "/api/v1/namespaces/shop/configmaps/settings"


class World:
    """A fake API server, a client of it, and the UIDs that were notified of a change."""

    def __init__(self, api: FakePodApi, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.notified: list[str] = []
        self.objects = WatchedObjects(client, SystemClock(), self.notified.append)

    def watches(self) -> int:
        return len([path for _, path in self.api.requests if "watch=true" in path])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakePodApi(SystemClock()) as api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        made = World(api, client)
        yield made
        await made.objects.close()
        await client.close()


def watching() -> bool:
    return any(task.get_name() == f"watch {KEY}" for task in asyncio.all_tasks())


async def test_one_read_and_one_watch_for_all_users(world: World) -> None:
    await world.api.config_map("settings", {"a": "1"})
    await world.api.config_map("other", {"a": "2"})
    found = await asyncio.gather(world.objects.get("u1", KEY), world.objects.get("u2", KEY))
    assert [item and item["data"] for item in found] == [{"a": "1"}, {"a": "1"}]
    await until(lambda: world.watches() == 1)
    await world.api.config_map("other", {"a": "3"})
    await world.api.config_map("settings", {"a": "9"})
    await until(lambda: world.notified == ["u1", "u2"])
    again = await world.objects.get("u1", KEY)
    assert again is not None and again["data"] == {"a": "9"}
    assert world.watches() == 1


async def test_appears_and_vanishes(world: World) -> None:
    assert await world.objects.get("u1", KEY) is None
    await until(lambda: world.watches() == 1)
    await world.api.config_map("settings", {})
    await until(lambda: world.notified == ["u1"])
    assert await world.objects.get("u1", KEY) is not None
    await world.api.remove(PATH)
    await until(lambda: world.notified == ["u1", "u1"])
    assert await world.objects.get("u1", KEY) is None


async def test_changes_between_read_and_watch_are_not_lost(world: World) -> None:
    await world.api.config_map("settings", {"a": "1"})
    await world.objects.get("u1", KEY)
    await world.api.config_map("settings", {"a": "2"})
    assert world.watches() == 0
    await until(lambda: world.notified == ["u1"])


async def test_immutable_objects_are_not_watched(world: World) -> None:
    await world.api.config_map("settings", {"a": "1"}, immutable=True)
    await world.objects.get("u1", KEY)
    await until(lambda: not watching())
    assert world.watches() == 0


async def test_a_watch_ends_after_its_last_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volumes.plan.watches.LINGER", 0.05)
    await world.api.config_map("settings", {"a": "1"})
    await world.objects.get("u1", KEY)
    await world.objects.get("u2", KEY)
    await until(watching)
    world.objects.drop_user("u1")
    assert watching()
    world.objects.drop_user("u2")
    assert watching()
    await until(lambda: not watching())
    world.objects.drop_user("u2")


async def test_the_next_pod_needs_no_request(world: World) -> None:
    await world.api.config_map("settings", {"a": "1"})
    await world.objects.get("u1", KEY)
    await until(lambda: world.watches() == 1)
    world.objects.drop_user("u1")
    asked = len(world.api.requests)
    assert await world.objects.get("u2", KEY) is not None
    assert len(world.api.requests) == asked


async def test_a_new_pod_never_starts_from_an_old_read(world: World) -> None:
    """Between the first read and the watch, changes go unseen: another pod reads again."""
    await world.api.config_map("settings", {"a": "1"})
    await world.objects.get("u1", KEY)
    await world.api.config_map("settings", {"a": "2"})
    found = await world.objects.get("u2", KEY)
    assert found is not None and found["data"] == {"a": "2"}


async def test_a_403_for_a_moment_is_retried(world: World) -> None:
    """The authorizer of the API server learns of a new pod a moment after its node does."""
    await world.api.config_map("settings", {"a": "1"})
    world.api.fail_with = [403, 403, 403]
    found = await world.objects.get("u1", KEY)
    assert found is not None


async def test_watch_survives_restarts_and_compaction(world: World) -> None:
    await world.api.config_map("settings", {"a": "1"})
    await world.objects.get("u1", KEY)
    await until(lambda: world.watches() == 1)
    world.api.drop_watches()
    await world.api.config_map("settings", {"a": "2"})
    world.api.compact()
    await until(lambda: world.notified == ["u1"])
    await until(lambda: world.watches() >= 2)
    await world.api.config_map("settings", {"a": "3"})
    await until(lambda: world.notified == ["u1", "u1"])
    found = await world.objects.get("u1", KEY)
    assert found is not None and found["data"] == {"a": "3"}


async def test_no_answer_is_an_error_and_the_answer_notifies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volumes.work.watched_objects._GET_TIMEOUT", 0.1)
    await world.api.config_map("settings", {"a": "1"})
    world.api.fail_with = [500] * 9
    with pytest.raises(Temporary, match="configmaps shop/settings"):
        await world.objects.get("u1", KEY)
    await until(lambda: world.notified == ["u1"])
    found = await world.objects.get("u1", KEY)
    assert found is not None and found["data"] == {"a": "1"}


REQUEST = TokenRequest("", 3600)


async def test_token_is_asked_for_once_and_renewed_in_time() -> None:
    clock = FakeClock()
    async with FakePodApi(clock) as api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        tokens = TokenCache(client, clock)
        one = pod(serviceAccountName="robot")
        assert await tokens.get(one, REQUEST) == "token-1 for api"
        assert await tokens.get(one, REQUEST) == "token-1 for api"
        assert api.token_requests[0]["spec"] == {
            "expirationSeconds": 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": one.uid},
            "audiences": [],
        }
        assert await tokens.get(one, TokenRequest("vault", 600)) == "token-2 for vault"
        assert tokens.due() == set()
        assert 450 <= tokens.next_due() <= 480
        await clock.advance(3600 * 0.8)
        assert tokens.due() == {one.uid}
        assert await tokens.get(one, REQUEST) == "token-3 for api"
        tokens.drop_pod(one.uid)
        assert tokens.due() == set()
        await client.close()


async def test_old_token_serves_while_renewal_fails() -> None:
    clock = FakeClock()
    async with FakePodApi(clock) as api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        tokens = TokenCache(client, clock)
        await tokens.get(pod(), REQUEST)
        await clock.advance(3600 * 0.9)
        api.token_failures = [500]
        assert await tokens.get(pod(), REQUEST) == "token-1 for api"
        assert tokens.due() == set()
        await clock.advance(3600)
        api.token_failures = [500]
        with pytest.raises(Temporary, match="token of service account shop/default: failed to fetch token"):
            await tokens.get(pod(), REQUEST)
        await client.close()


async def test_long_tokens_are_renewed_daily() -> None:
    clock = FakeClock()
    async with FakePodApi(clock) as api:
        client = KubeClient(ClusterAccess(server=api.url), user_agent="test")
        tokens = TokenCache(client, clock)
        await tokens.get(pod(), TokenRequest("", 365 * 86400))
        await clock.advance(86400 - 11)
        assert tokens.due() == set()
        await clock.advance(11)
        assert tokens.due() == {pod().uid}
        await client.close()


async def test_token_of_a_pod_that_the_server_does_not_know_yet(world: World) -> None:
    world.api.token_failures = [403, 404]
    assert await TokenCache(world.client, SystemClock()).get(pod(), REQUEST) == "token-1 for api"


async def test_static_pods_get_no_objects(world: World) -> None:
    objects = PodObjects(world.client, SystemClock(), world.notified.append)
    with pytest.raises(Temporary, match="static pod cannot use secrets keys"):
        await objects.object(pod(source="file"), ObjectRef(SECRET, "keys"))


async def test_claims(world: World) -> None:
    objects = PodObjects(world.client, SystemClock(), world.notified.append)
    claim = {
        "metadata": {"name": "c", "namespace": "shop", "uid": "c-1"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    volume = {"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c-1"}, "local": {"path": "/x"}}}
    assert await objects.claim(pod(), "c") is None
    pending = {**claim, "spec": {}, "status": {"phase": "Pending"}}
    await world.api.put("/api/v1/namespaces/shop/persistentvolumeclaims/c", pending)
    found = await objects.claim(pod(), "c")
    assert found is not None and (found.claim["status"], found.volume) == ({"phase": "Pending"}, None)
    await world.api.put("/api/v1/namespaces/shop/persistentvolumeclaims/c", claim)
    found = await objects.claim(pod(), "c")
    assert found is not None and found.volume is None
    await world.api.put("/api/v1/persistentvolumes/pv", volume)
    found = await objects.claim(pod(), "c")
    assert found is not None and found.volume is not None
    assert found.volume["spec"]["local"] == {"path": "/x"} and found.claim["metadata"]["uid"] == "c-1"


async def test_trust_bundles_notify_their_users(world: World) -> None:
    objects = PodObjects(world.client, SystemClock(), world.notified.append)
    tasks = [asyncio.create_task(work()) for _, work in objects.tasks()]
    assert await objects.trust_bundles(pod()) == []
    await world.api.put("/apis/certificates.k8s.io/v1/clustertrustbundles/a", {"metadata": {"name": "a"}, "spec": {}})
    await until(lambda: world.notified == [pod().uid])
    assert len(await objects.trust_bundles(pod())) == 1
    await cancel_and_wait(*tasks)
    await objects.close()


async def test_a_pod_is_notified_of_renewals(world: World) -> None:
    """A token of one second must be renewed at once, and its pod is notified."""
    objects = PodObjects(world.client, SystemClock(), world.notified.append)
    tasks = [asyncio.create_task(work()) for _, work in objects.tasks()]
    await objects.token(pod(), TokenRequest("", 11))
    await until(lambda: pod().uid in world.notified, 15)
    assert set(world.notified) == {pod().uid}
    await cancel_and_wait(*tasks)
    await objects.close()


@pytest.mark.parametrize("name", ["../../shop/secrets/s", "..", "%2e%2e/x", "s?x", "a/b"])
async def test_what_is_no_name_is_no_object(world: World, name: str) -> None:
    """The API server takes any text for the name of a Secret, a ConfigMap or a claim in a pod."""
    objects = PodObjects(world.client, SystemClock(), world.notified.append)
    other = pod(meta={"namespace": "other"})
    before = len(world.api.requests)
    assert await objects.object(other, ObjectRef(SECRET, name)) is None
    assert await objects.object(other, ObjectRef(CONFIG_MAP, name)) is None
    assert await objects.claim(other, name) is None
    assert len(world.api.requests) == before
