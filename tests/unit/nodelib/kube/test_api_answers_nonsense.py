"""An API server, or what stands in its place, answers nonsense: nothing is concluded from it, and all is soon well."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient, UnexpectedAnswer
from nodelib.kube.reflector import Reflector
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.nonsense import LISTS, PAGE, WATCHES, Nonsense
from tests.waiting import until

PODS = "/api/v1/pods"
NODE = {"fieldSelector": "spec.nodeName=n1"}


def pod(number: int, node: str = "n1") -> Json:
    return {"metadata": {"namespace": "default", "name": f"p{number}"}, "spec": {"nodeName": node}}


@dataclass
class Bench:
    """A reflector of three pods, and what it reported since."""

    api: FakeApiServer
    client: KubeClient
    changes: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reflector = Reflector(self.client, PODS, name="pods", params=NODE, on_change=self._on_change)

    def _on_change(self, kind: str, item: Json, old: Json | None) -> None:
        self.changes.append((kind, item["metadata"]["name"]))

    def answers(self, watch: bool) -> int:
        return len([query for _, query in self.api.requests if ("watch=true" in query) is watch])


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr("nodelib.kube.answers.LONGEST_RETRY_AFTER", 2.0)
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=2)
        made = Bench(api, client)
        for number in range(3):
            await api.put(f"{PODS}/p{number}", pod(number))
        task = asyncio.create_task(made.reflector.run())
        await asyncio.wait_for(made.reflector.synced.wait(), 20)
        await until(lambda: made.answers(watch=True) == 1)
        made.changes.clear()
        yield made
        assert not task.done(), "the reflector has ended"
        await cancel_and_wait(task)
        await client.close()


async def _well_again(bench: Bench) -> None:
    """The switch is back: the next change is reported, and nothing else was."""
    bench.api.nonsense = lambda request: None
    await bench.api.put(f"{PODS}/new", pod(0) | {"metadata": {"namespace": "default", "name": "new"}})
    await until(lambda: ("ADDED", "new") in bench.changes, seconds=30)
    assert bench.changes == [("ADDED", "new")]
    assert len(bench.reflector.store) == 4


@pytest.mark.parametrize("kind", LISTS)
async def test_a_list_that_is_none_changes_nothing(bench: Bench, kind: str) -> None:
    def nonsense(request: web.Request) -> Nonsense | None:
        return LISTS[kind] if "watch" not in request.query else None

    bench.api.nonsense, bench.api.streams = nonsense, False
    lists = bench.answers(watch=False)
    bench.api.compact()
    await bench.api.put("/api/v1/namespaces/unrelated", {"metadata": {"name": "unrelated"}})
    bench.api.compact()
    bench.api.drop_watches()
    await until(lambda: bench.answers(watch=False) >= lists + 2, seconds=60)
    assert bench.changes == [] and len(bench.reflector.store) == 3
    await _well_again(bench)


@pytest.mark.parametrize("kind", WATCHES)
async def test_a_watch_that_is_none_changes_nothing_and_does_not_turn_in_circles(bench: Bench, kind: str) -> None:
    bench.api.nonsense = lambda request: WATCHES[kind] if "watch" in request.query else None
    before, started = bench.answers(watch=True), time.monotonic()
    bench.api.drop_watches()
    # Every other of them asks for initial events, which are listed in pages at once where they are nonsense.
    await until(lambda: bench.answers(watch=True) >= before + 6, seconds=60)
    took = time.monotonic() - started
    assert took > 0.2, f"six watches and lists within {took:.3f} s: no pause between them"
    assert bench.changes == [] and len(bench.reflector.store) == 3
    await _well_again(bench)


async def test_the_first_list_waits_for_a_true_answer() -> None:
    async with FakeApiServer() as api:
        await api.put(f"{PODS}/p0", pod(0))
        api.nonsense = lambda request: LISTS["an empty object"]
        client = KubeClient(ClusterAccess(api.url), user_agent="test")
        reflector = Reflector(client, PODS, name="pods", params=NODE)
        task = asyncio.create_task(reflector.run())
        await until(lambda: len(api.requests) >= 3)
        assert not reflector.synced.is_set() and "it answered with" in reflector.last_error
        api.nonsense = lambda request: None
        await asyncio.wait_for(reflector.synced.wait(), 20)
        assert len(reflector.store) == 1
        await cancel_and_wait(task)
        await client.close()


@contextlib.asynccontextmanager
async def answering(nonsense: Nonsense, timeout: float = 2) -> AsyncIterator[tuple[FakeApiServer, KubeClient]]:
    async with FakeApiServer() as api:
        api.nonsense = lambda request: nonsense
        client = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=timeout)
        yield api, client
        await client.close()


@pytest.mark.parametrize("kind", [kind for kind in LISTS if "Status" not in kind and "asked for" not in kind])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "POST"])
async def test_an_answer_that_is_no_object_is_no_answer(kind: str, method: str) -> None:
    async with answering(LISTS[kind], 0.5) as (_, client):
        path = "/api/v1/nodes" if method == "POST" else "/api/v1/nodes/n1"
        with pytest.raises((ApiUnreachable, ApiError)) as caught:
            await client.request(method, path, body=None if method == "GET" else {})
    assert not (isinstance(caught.value, ApiError) and caught.value.code < 429), "a page decides nothing"


async def test_another_object_than_the_one_asked_for_is_no_answer() -> None:
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test")
        await api.put("/api/v1/nodes/n1", {"metadata": {"name": "n2"}})
        with pytest.raises(UnexpectedAnswer, match="'n2' in the place of 'n1'"):
            await client.get("/api/v1/nodes/n1")
        await client.close()


async def test_a_missing_object_needs_an_api_server_to_say_so() -> None:
    for nonsense in (LISTS["a page 404"],):
        async with answering(nonsense) as (_, client):
            with pytest.raises(UnexpectedAnswer):
                await client.get("/api/v1/namespaces/default/secrets/s")


async def test_a_huge_answer_does_not_fill_the_memory() -> None:
    for kind in ("300 MiB", "300 MiB in a small gzip"):
        async with answering(LISTS[kind], 60) as (_, client):
            with pytest.raises(UnexpectedAnswer, match="more than 64 MiB"):
                await client.get(PODS, NODE)


async def test_retry_after_is_obeyed_and_bounded() -> None:
    times: list[float] = []

    async def busy(request: web.Request, true: bytes) -> web.StreamResponse:
        times.append(time.monotonic())
        if len(times) < 3:
            return web.Response(status=429, text=PAGE, headers={"Retry-After": "1"})
        return web.json_response({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1", "uid": "u"}})

    async with answering(busy, 30) as (_, client):
        assert (await client.get("/api/v1/nodes/n1"))["kind"] == "Node"
    assert [round(later - sooner) for sooner, later in pairwise(times)] == [1, 1]
    async with answering(LISTS["too many requests, come back next year"]) as (api, client):
        with pytest.raises(ApiError) as caught:
            await client.get("/api/v1/nodes/n1")
        assert caught.value.code == 429 and caught.value.retry_after == 30 and len(api.requests) == 1
    async with answering(LISTS["too many requests, come back in ²"]) as (api, client):
        with pytest.raises(ApiError) as caught:
            await client.get("/api/v1/nodes/n1")
        assert caught.value.retry_after is None


async def test_a_redirect_takes_no_credentials_elsewhere() -> None:
    async with FakeApiServer() as other:
        seen: list[str] = []

        async def away(request: web.Request, true: bytes) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"{other.url}{request.path}")

        def note(request: web.Request) -> None:
            seen.append(request.path)

        other.nonsense = note
        async with answering(away) as (_, client):
            with pytest.raises(UnexpectedAnswer, match="status 307"):
                await client.get("/api/v1/nodes/n1")
    assert seen == []


@pytest.mark.parametrize("content", [None, b"", b"one\r\nX-Remote-User: admin", b"\xff\xfe", b"t" * 100_000], ids=str)
async def test_a_token_file_that_holds_no_token_is_no_crash(tmp_path: Path, content: bytes | None) -> None:
    async with FakeApiServer() as api:
        path = tmp_path / "token"
        if content is not None:
            path.write_bytes(content)
        client = KubeClient(ClusterAccess(api.url, token_file=str(path)), user_agent="test", timeout=2)
        with pytest.raises((ApiUnreachable, ApiError)) as caught:
            await client.get("/api/v1/nodes/n1")
        if content is None:
            assert str(path) in str(caught.value)
        with pytest.raises((ApiUnreachable, ApiError)):
            async for _ in client.stream("/api/v1/nodes", {"resourceVersion": "-1"}):
                raise AssertionError("an event")
        await client.close()
