"""The API client and the reflector against a fake API server."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agent.server.edge.certificates import ensure_self_signed
from nodelib.json_values import Json
from nodelib.kube import answers
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient
from nodelib.kube.paths import is_name, is_plain
from nodelib.kube.reflector import Reflector
from nodelib.kube.tls import tls_context
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import until

PODS = "/api/v1/namespaces/ns/pods"


def thing(name: str, **spec: object) -> Json:
    return {"metadata": {"namespace": "ns", "name": name}, "spec": spec}


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(api: FakeApiServer) -> AsyncIterator[KubeClient]:
    client = KubeClient(ClusterAccess(api.url), user_agent="test")
    yield client
    await client.close()


async def test_verbs(client: KubeClient) -> None:
    await client.post(PODS, thing("a", x=1))
    assert (await client.patch(f"{PODS}/a", {"spec": {"y": 2}}))["spec"] == {"x": 1, "y": 2}
    await client.delete(f"{PODS}/a")
    with pytest.raises(ApiError) as caught:
        await client.delete(f"{PODS}/a")
    assert caught.value.is_not_found


async def test_conflicts_are_distinguished(client: KubeClient) -> None:
    created = await client.post(PODS, thing("a"))
    with pytest.raises(ApiError) as caught:
        await client.post(PODS, thing("a"))
    assert caught.value.is_already_exists
    await client.put(f"{PODS}/a", created)
    with pytest.raises(ApiError) as caught:
        await client.put(f"{PODS}/a", created)
    assert caught.value.is_conflict


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("404 page not found\n", "not serve that"),
        ('{"kind": "Status", "reason": "NotFound", "message": "could not find", "details": {}}', "not serve"),
        ('{"kind": "Status", "reason": "NotFound", "message": "no pods x", "details": {"kind": "pods"}}', "no pods x"),
    ],
    ids=["no such group or version", "no such resource", "no such object"],
)
async def test_an_api_that_is_not_served_is_no_missing_object(text: str, words: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=404, text=text)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    async with TestServer(app) as server:
        client = KubeClient(ClusterAccess(str(server.make_url("")).rstrip("/")), user_agent="test")
        with pytest.raises(ApiError, match=words) as caught:
            await client.get("/apis/certificates.k8s.io/v1/clustertrustbundles")
        await client.close()
    assert caught.value.code == 404 and caught.value.is_not_found is (words == "no pods x")


async def test_a_log_is_read_to_its_limit_and_no_further() -> None:
    async def log(request: web.Request) -> web.StreamResponse:
        if request.query.get("container") != "app":
            return web.json_response({"kind": "Status", "message": "no such container"}, status=400)
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:  # a server that does not obey limitBytes
            await answer.write(b"\xfftext\n" * 100)

    app = web.Application()
    app.router.add_get("/{tail:.*}", log)
    async with TestServer(app) as server:
        client = KubeClient(ClusterAccess(str(server.make_url("")).rstrip("/")), user_agent="test")
        text = await client.text(f"{PODS}/web/log", {"container": "app"}, limit=600)
        assert text.startswith("\ufffdtext\n") and len(text) == 600
        with pytest.raises(ApiError, match="no such container"):
            await client.text(f"{PODS}/web/log", {"container": "none"}, limit=600)
        await client.close()


async def test_the_certificate_is_checked_for_the_name_that_the_kubeconfig_gives(tmp_path: Path) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ["api.example"], [])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    server = TestServer(web.Application(), scheme="https")
    await server.start_server(ssl=context)
    try:
        access = ClusterAccess(f"https://127.0.0.1:{server.port}", ca_data=Path(cert).read_bytes())
        for name, error in ((None, ApiUnreachable), ("api.example", ApiError)):  # an answer, if only "404"
            client = KubeClient(dataclasses.replace(access, tls_server_name=name), user_agent="test")
            with pytest.raises(error) as caught:
                await client.get("/version")
            if name is None:
                assert "certificate is refused" in str(caught.value) and "certSANs" in caught.value.action
            await client.close()
    finally:
        await server.close()


async def test_a_client_key_in_a_kubeconfig_is_written_to_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ["api.example"], [])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-such-folder"))
    pem, key_pem = Path(cert).read_bytes(), Path(key).read_bytes()
    opened = len(os.listdir("/proc/self/fd"))
    access = ClusterAccess("https://x", ca_data=pem, cert_data=pem, key_data=key_pem)
    assert isinstance(tls_context(access), ssl.SSLContext)
    assert len(os.listdir("/proc/self/fd")) == opened
    with pytest.raises(OSError, match="not PEM"):
        tls_context(ClusterAccess("https://x", ca_data=b"\xff"))


async def test_no_server_is_unreachable_and_says_where() -> None:
    client = KubeClient(ClusterAccess("http://127.0.0.1:1"), user_agent="test")
    with pytest.raises(ApiUnreachable, match=r"127\.0\.0\.1:1"):
        await client.get("/healthz")
    await client.close()


def test_of_a_health_check_only_the_parts_that_fail_are_repeated() -> None:
    passing = [f"[+]poststarthook/number-{number} ok" for number in range(60)]
    body = "\n".join([*passing, "[-]poststarthook/rbac/bootstrap-roles failed: reason withheld", "readyz check failed"])
    error = answers.failure(500, "GET", "/readyz", body.encode(), None)
    assert error.message == "poststarthook/rbac/bootstrap-roles failed: reason withheld"


class Follower:
    """A running reflector and the changes that it reported."""

    def __init__(self, client: KubeClient) -> None:
        self.changes: list[tuple[str, str]] = []
        self.reflector = Reflector(client, PODS, name="pods", on_change=self._on_change)
        self.task = asyncio.create_task(self.reflector.run())

    def _on_change(self, kind: str, obj: Json, old: Json | None) -> None:
        self.changes.append((kind, obj["metadata"]["name"]))


@pytest.fixture
async def follower(client: KubeClient) -> AsyncIterator[Follower]:
    follower = Follower(client)
    yield follower
    await cancel_and_wait(follower.task)


async def test_reflector_tells_each_change_once(api: FakeApiServer, follower: Follower) -> None:
    await api.put(f"{PODS}/a", thing("a"))
    await asyncio.wait_for(follower.reflector.synced.wait(), 20)
    await api.put(f"{PODS}/a", thing("a", x=1))
    await api.put(f"{PODS}/big", thing("big", x="y" * 3_000_000))
    await api.remove(f"{PODS}/a")
    await until(lambda: len(follower.changes) == 4)
    assert follower.changes == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "big"), ("DELETED", "a")]
    assert list(follower.reflector.store) == [("ns", "big")]


@pytest.mark.parametrize("streams", [True, False], ids=["as initial events", "in pages"])
async def test_a_large_list_does_not_hold_the_loop(api: FakeApiServer, client: KubeClient, streams: bool) -> None:
    for number in range(1203):
        await api.put(f"{PODS}/p{number}", thing(f"p{number}"))
    api.streams = streams
    follower = Follower(client)
    turns = 0
    while not follower.reflector.synced.is_set():
        await asyncio.sleep(0)
        turns += 1
    follower.task.cancel()
    lists = [query for _, query in api.requests if "watch" not in query]
    assert turns > 1203 // 64 and (lists == [] if streams else "continue=1000" in lists[2])
    assert len(follower.changes) == len(follower.reflector.store) == 1203


async def test_a_watch_goes_on_after_the_client_reconnects(
    api: FakeApiServer, client: KubeClient, follower: Follower
) -> None:
    await asyncio.wait_for(follower.reflector.synced.wait(), 20)
    for name in ("first", "a", "b"):
        await api.put(f"{PODS}/{name}", thing(name))

        def reported(name: str = name) -> bool:
            return ("ADDED", name) in follower.changes

        await until(reported)
        await client.reconnect()
    lists = [query for _, query in api.requests if "watch" not in query or "sendInitialEvents" in query]
    assert follower.reflector.last_error == "" and len(lists) == 1, "it watches again without listing again"


async def test_reflector_finds_at_relist_what_it_missed(api: FakeApiServer, follower: Follower) -> None:
    await api.put(f"{PODS}/gone", thing("gone"))
    await api.put(f"{PODS}/same", thing("same"))
    await api.put(f"{PODS}/changed", thing("changed"))
    await until(lambda: len(follower.changes) == 3)
    follower.changes.clear()
    api.fail_with = [500, 503]
    api.drop_watches()
    await api.remove(f"{PODS}/gone")
    await api.put(f"{PODS}/changed", thing("changed", x=1))
    api.compact()
    await until(lambda: len(follower.changes) >= 2)
    assert sorted(follower.changes) == [("DELETED", "gone"), ("MODIFIED", "changed")]


async def test_a_first_list_is_reported_as_a_whole_and_once(api: FakeApiServer, client: KubeClient) -> None:
    lists: list[list[str]] = []
    changes: list[tuple[str, str]] = []

    async def on_first(items: list[Json]) -> None:
        lists.append([item["metadata"]["name"] for item in items])

    def on_change(kind: str, obj: Json, old: Json | None) -> None:
        changes.append((kind, obj["metadata"]["name"]))

    for name in ("a", "b"):
        await api.put(f"{PODS}/{name}", thing(name))
    api.fail_with = [500]
    reflector = Reflector(client, PODS, name="pods", on_change=on_change, on_first=on_first)
    task = asyncio.create_task(reflector.run())
    await asyncio.wait_for(reflector.synced.wait(), 20)
    assert (lists, changes) == ([["a", "b"]], [])
    await api.put(f"{PODS}/c", thing("c"))
    await until(lambda: changes == [("ADDED", "c")])
    api.drop_watches()
    await api.remove(f"{PODS}/a")
    api.compact()
    await until(lambda: changes == [("ADDED", "c"), ("DELETED", "a")])
    assert len(lists) == 1
    await cancel_and_wait(task)


async def test_a_first_list_that_cannot_be_taken_as_a_whole_is_reported_one_by_one(
    api: FakeApiServer, client: KubeClient
) -> None:
    changes: list[tuple[str, str]] = []

    async def on_first(items: list[Json]) -> None:
        raise RuntimeError("a defect in the handler")

    def on_change(kind: str, obj: Json, old: Json | None) -> None:
        changes.append((kind, obj["metadata"]["name"]))

    for name in ("a", "b"):
        await api.put(f"{PODS}/{name}", thing(name))
    reflector = Reflector(client, PODS, name="pods", on_change=on_change, on_first=on_first)
    task = asyncio.create_task(reflector.run())
    await asyncio.wait_for(reflector.synced.wait(), 20)
    assert changes == [("ADDED", "a"), ("ADDED", "b")]
    await cancel_and_wait(task)


async def test_a_failing_handler_does_not_end_the_watch(
    api: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[str] = []

    def on_change(kind: str, obj: Json, old: Json | None) -> None:
        changes.append(kind)
        raise RuntimeError("a defect in the handler")

    task = asyncio.create_task(Reflector(client, PODS, name="pods", on_change=on_change).run())
    await api.put(f"{PODS}/a", thing("a"))
    await until(lambda: changes == ["ADDED"])
    await api.remove(f"{PODS}/a")
    await until(lambda: changes == ["ADDED", "DELETED"])
    await cancel_and_wait(task)
    failures = [record.message for record in caplog.records if "the handler of" in record.message]
    assert [text.split()[4] for text in failures] == ["ADDED", "DELETED"]


async def test_reflector_tells_that_there_is_no_news_until_a_watch_is_open_again(
    api: FakeApiServer, client: KubeClient
) -> None:
    states: list[str] = []
    cut = 0

    async def hang_up(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal cut
        cut += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    reflector = Reflector(client, PODS, name="pods", on_state=states.append)
    task = asyncio.create_task(reflector.run())
    await until(lambda: states == [""])
    api.nonsense = lambda request: hang_up
    api.drop_watches()
    await until(lambda: cut >= 4)
    assert states[-1] and "" not in states[1:], "a new try is no good news"
    api.nonsense = lambda request: None
    await until(lambda: states[-1] == "")
    assert reflector.last_error == ""
    await cancel_and_wait(task)


@pytest.mark.parametrize(
    "name", ["../b", "..", ".", "x/../../b", "%2e%2e/b", "x?limit=1", "x#y", "", "x\\y", "x y", "ü"]
)
async def test_a_path_is_asked_for_as_it_is_written_or_not_at_all(client: KubeClient, name: str) -> None:
    """The HTTP library would make another path of these: that of an object of another namespace, for one."""
    await client.post("/api/v1/namespaces/b/pods", {"metadata": {"namespace": "b", "name": "b"}})
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.get(f"{PODS}/{name}/x"),
        lambda: client.patch(f"{PODS}/{name}/x", {}),
        lambda: client.text(f"{PODS}/{name}/x", {}, limit=10),
        lambda: anext(client.stream(f"{PODS}/{name}/x", {})),
    ]
    for call in calls:
        with pytest.raises(ApiError) as caught:
            await call()
        assert caught.value.is_not_found and "name" in caught.value.message
    assert not is_name(name)


@pytest.mark.parametrize("name", ["x", "kube-root-ca.crt", "system:node:a", "a.b_c~d"])
def test_names_of_objects(name: str) -> None:
    assert is_name(name) and is_plain(f"/api/v1/namespaces/ns/secrets/{name}") and not is_name(f"{name}/x")
