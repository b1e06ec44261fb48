"""A list that comes as the first events of a watch: whole or not at all, and in pages where a server does not do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, then_trimmed
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.nonsense import LISTS, STREAMS, WATCHES, Nonsense
from tests.waiting import until

PODS = "/api/v1/pods"
NODE = {"fieldSelector": "spec.nodeName=n1"}
BOUNDS = {"_SILENCE": 0.5, "_LONGEST": 1.0, "_MOST_BYTES": 4 << 20, "MOST_OBJECTS": 500}


def pod(name: str, node: str = "n1") -> Json:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"nodeName": node}}


@dataclass
class Bench:
    """A reflector of the pods of one node, and what it reported."""

    api: FakeApiServer
    client: KubeClient
    changes: list[tuple[str, str]] = field(default_factory=list)

    def follow(self) -> None:
        self.reflector = Reflector(self.client, PODS, name="pods", params=NODE, on_change=self._on_change)
        self.task = asyncio.create_task(self.reflector.run())

    async def synced(self) -> None:
        await asyncio.wait_for(self.reflector.synced.wait(), 20)

    async def put(self, *names: str) -> None:
        for name in names:
            await self.api.put(f"{PODS}/{name}", pod(name))

    async def expire(self) -> None:
        """The reflector's version is too old for the server."""
        self.api.compact()
        await self.api.put("/api/v1/namespaces/unrelated", {"metadata": {"name": "unrelated"}})
        self.api.compact()
        self.api.drop_watches()

    def asked(self, *, streaming: bool) -> int:
        """Lists that it asked for, each page for itself."""
        queries = [query for _, query in self.api.requests]
        return len([one for one in queries if ("sendInitialEvents" if streaming else "limit=") in one])

    def _on_change(self, kind: str, item: Json, old: Json | None) -> None:
        self.changes.append((kind, item["metadata"]["name"]))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test", timeout=2)
        made = Bench(api, client)
        yield made
        assert not made.task.done(), "the reflector has ended"
        await cancel_and_wait(made.task)
        await client.close()


async def test_a_first_list_is_one_request_that_goes_on_as_the_watch(bench: Bench) -> None:
    await bench.put("a", "b")
    await bench.api.put(f"{PODS}/elsewhere", pod("elsewhere", "n2"))
    bench.follow()
    await bench.synced()
    assert bench.changes == [("ADDED", "a"), ("ADDED", "b")]
    await bench.put("c")
    await bench.api.remove(f"{PODS}/a")
    await until(lambda: bench.changes[2:] == [("ADDED", "c"), ("DELETED", "a")])
    ((_, query),) = bench.api.requests
    wanted = {"sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true", "watch=true"}
    given = set(query.partition("?")[2].split("&"))
    assert wanted <= given and not any(one.startswith("resourceVersion=") for one in given), "of the newest state"


async def test_a_watch_that_ends_goes_on_from_the_version_of_the_bookmark(bench: Bench) -> None:
    await bench.put("a")
    bench.follow()
    await bench.synced()
    version = bench.api.version
    bench.api.drop_watches()
    await until(lambda: len(bench.api.requests) == 2)
    assert f"resourceVersion={version}" in bench.api.requests[1][1] and bench.asked(streaming=True) == 1


async def test_a_later_list_reports_what_is_gone_new_and_changed(bench: Bench) -> None:
    await bench.put("gone", "same", "changed")
    bench.follow()
    await bench.synced()
    bench.changes.clear()
    bench.api.drop_watches()
    await bench.api.remove(f"{PODS}/gone")
    await bench.put("changed", "new")
    await bench.expire()
    await until(lambda: len(bench.changes) >= 3)
    assert sorted(bench.changes) == [("ADDED", "new"), ("DELETED", "gone"), ("MODIFIED", "changed")]
    assert bench.asked(streaming=True) == 2 and bench.asked(streaming=False) == 0


async def test_what_changes_among_the_initial_events_is_in_the_list(bench: Bench) -> None:
    await bench.put("a", "b", "c")
    bench.follow()
    await bench.synced()
    bench.changes.clear()

    async def changing(request: web.Request, true: bytes) -> web.StreamResponse:
        *added, end = true.splitlines(keepends=True)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        deleted = added[0].replace(b'"ADDED"', b'"DELETED"')
        modified = added[1].replace(b'"ADDED"', b'"MODIFIED"').replace(b'"nodeName"', b'"new": true, "nodeName"')
        for line in (*added, deleted, modified.replace(b'"resourceVersion": "', b'"resourceVersion": "9'), end):
            await response.write(line)
        await asyncio.sleep(3600)
        return response

    bench.api.nonsense = lambda request: changing if "sendInitialEvents" in request.query else None
    await bench.expire()
    await until(lambda: len(bench.changes) >= 2)
    assert bench.changes == [("DELETED", "a"), ("MODIFIED", "b")]


@pytest.mark.parametrize("kind", STREAMS)
async def test_initial_events_that_are_none_change_nothing(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.put("p0", "p1", "p2")
    bench.follow()
    await bench.synced()
    bench.changes.clear()
    for name, value in BOUNDS.items():
        monkeypatch.setattr(f"nodelib.kube.streaming_list.{name}", value)

    def nonsense(request: web.Request) -> Nonsense | None:
        if "watch" not in request.query:
            return LISTS["a page"]
        return STREAMS[kind] if "sendInitialEvents" in request.query else WATCHES["an event that says so"]

    bench.api.nonsense = nonsense
    streams, lists = bench.asked(streaming=True), bench.asked(streaming=False)
    bench.api.drop_watches()
    await until(lambda: bench.asked(streaming=True) > streams and bench.asked(streaming=False) > lists, seconds=30)
    assert bench.changes == [] and sorted(name for _, name in bench.reflector.store) == ["p0", "p1", "p2"]
    bench.api.nonsense = lambda request: None
    await bench.put("new")
    await until(lambda: bool(bench.changes), seconds=30)
    assert bench.changes == [("ADDED", "new")]


@pytest.mark.parametrize("kind", ["a cut half-way", "a bookmark that never comes", "an error half-way: too old"])
async def test_half_of_a_first_list_is_no_list(bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodelib.kube.streaming_list._SILENCE", 0.5)
    await bench.put("p0", "p1")
    busy = True

    def nonsense(request: web.Request) -> Nonsense | None:
        if "watch" in request.query:
            return STREAMS[kind] if "sendInitialEvents" in request.query else None
        return LISTS["a page 503"] if busy else None

    bench.api.nonsense = nonsense
    bench.follow()
    await until(lambda: bench.asked(streaming=False) >= 2)
    assert not bench.reflector.synced.is_set()
    await bench.api.remove(f"{PODS}/p0")
    busy = False
    await bench.synced()
    assert list(bench.reflector.store) == [("default", "p1")]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [("refused: invalid", 1), ("a bookmark that never comes", 1), ("bytes without an end", 1), ("refused: expired", 2)],
)
async def test_a_server_that_does_not_do_it_is_not_asked_again_for_a_while(
    bench: Bench, kind: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in BOUNDS.items():
        monkeypatch.setattr(f"nodelib.kube.streaming_list.{name}", value)
    await bench.put("a")
    bench.api.nonsense = lambda request: STREAMS[kind] if "sendInitialEvents" in request.query else None
    bench.follow()
    await bench.synced()
    await until(lambda: bench.api.requests[-1][1].count("watch=true") == 1)
    await bench.expire()
    await until(lambda: bench.asked(streaming=False) == 2)
    assert bench.asked(streaming=True) == asked
    loop = asyncio.get_running_loop()
    true_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: true_time() + 601)
    await bench.expire()
    await until(lambda: bench.asked(streaming=True) == asked + 1)


async def test_a_server_that_is_asked_too_much_is_not_asked_for_pages_instead(bench: Bench) -> None:
    await bench.put("a")
    bench.api.nonsense = lambda request: WATCHES["too many requests"] if "watch" in request.query else None
    bench.follow()
    await until(lambda: bench.asked(streaming=True) == 2, seconds=20)
    assert bench.asked(streaming=False) == 0
    bench.api.nonsense = lambda request: None
    await bench.synced()


async def test_what_is_not_served_is_not_listed_in_pages_either(bench: Bench) -> None:
    async def not_served(request: web.Request, true: bytes) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")

    there = False
    bench.api.nonsense = lambda request: None if there else not_served
    bench.follow()
    await until(lambda: bench.asked(streaming=True) >= 3)
    assert bench.asked(streaming=False) == 0 and "does not serve that" in bench.reflector.last_error
    there = True
    await bench.synced()


async def test_with_the_gate_off_lists_come_in_pages(bench: Bench) -> None:
    await bench.put("a")
    bench.client.streaming_lists = False
    bench.follow()
    await bench.synced()
    await until(lambda: len(bench.api.requests) == 2)
    assert bench.asked(streaming=False) == 1 and bench.asked(streaming=True) == 0
    assert bench.changes == [("ADDED", "a")]


async def test_objects_are_trimmed_as_they_come_and_the_ones_that_stay_are_kept_trimmed(bench: Bench) -> None:
    await bench.put("a", "b")
    seen: list[Json] = []
    bench.follow()
    trimmed = Reflector(
        bench.client, PODS, name="trimmed", on_change=then_trimmed(lambda kind, item: seen.append(item["spec"]))
    )
    task = asyncio.create_task(trimmed.run())
    await asyncio.wait_for(trimmed.synced.wait(), 20)
    await bench.put("b")
    await until(lambda: len(seen) == 3)
    await bench.put("c")
    await bench.expire()
    await until(lambda: len(seen) == 4)
    assert [sorted(item) for item in trimmed.store.values()] == [["metadata"]] * 3
    await cancel_and_wait(task)
