"""Lists of pods of a megabyte each, which a node may have a hundred of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from nodelib.json_values import Json
from tests.builders.pods import pod
from tests.fakes.agent_view import FakeView
from tests.unit.agent.server.conftest import Bench
from tests.waiting import until

_PODS, _BYTES = 60, 1_000_000


class _Counting(FakeView):
    """Counts the pods whose status is looked up, as they are put into an answer."""

    looked_up = 0

    def status(self, uid: str) -> Json:
        self.looked_up += 1
        return super().status(uid)


async def _start(bench: Bench) -> _Counting:
    bench.view = _Counting()
    for number in range(_PODS):
        meta = {"uid": f"u{number}", "name": f"p{number}", "annotations": {"text": "x" * _BYTES}}
        bench.view.by_uid[f"u{number}"] = pod(meta=meta)
    settings = bench.settings(mode="AlwaysAllow", anonymous=True)
    await bench.start(replace(settings, allocated_pods=True))
    return bench.view


@asynccontextmanager
async def _silent(bench: Bench, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client that asks, and reads next to nothing of the answer until it is told to."""
    assert bench.server is not None
    port = bench.server.addresses["kubelet"][1]
    reader, writer = await asyncio.open_connection("localhost", port, ssl=bench.tls(), limit=1024)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    yield reader
    writer.transport.abort()


@pytest.mark.parametrize("path", ["/pods", "/allocatedPods"])
async def test_all_pods_are_listed(bench: Bench, path: str) -> None:
    await _start(bench)
    status, text = await bench.get(path)
    listed = json.loads(text)
    assert (status, listed["kind"], listed["apiVersion"], listed["metadata"]) == (200, "PodList", "v1", {})
    assert [one["metadata"]["name"] for one in listed["items"]] == [f"p{number}" for number in range(_PODS)]


async def test_what_a_client_does_not_read_is_not_put_together(bench: Bench) -> None:
    """A hundred pods were 187 MB for each client, made and encrypted in one turn of the event loop."""
    view = await _start(bench)
    async with _silent(bench, "/pods"):
        assert await until(lambda: view.looked_up > 0)
        await bench.get("/healthz")
        assert view.looked_up < _PODS // 2


@pytest.mark.parametrize("path", ["/pods", "/allocatedPods"])
async def test_a_client_that_reads_slowly_is_sent_pods_as_they_are_then(bench: Bench, path: str) -> None:
    """What they were when it asked is not kept for it: clients that never read would each keep all pods once more."""
    view = await _start(bench)
    async with _silent(bench, path) as reader:
        await bench.get("/healthz")
        for uid, one in list(view.by_uid.items()):
            meta = {**one.meta, "annotations": {"text": "new"}}
            view.by_uid[uid] = pod(meta=meta)
        del view.by_uid[f"u{_PODS - 2}"]
        answer = await reader.read()
    assert answer.count(b'"text":"new"') > _PODS // 2
    assert b'"name":"p59"' in answer and b'"name":"p58"' not in answer
    assert answer.endswith(b"]}\r\n0\r\n\r\n")


async def test_no_pods(bench: Bench) -> None:
    view = await _start(bench)
    view.by_uid.clear()
    assert json.loads((await bench.get("/pods"))[1])["items"] == []


async def test_others_have_turns_between_two_pods(bench: Bench) -> None:
    view, turns, seen = await _start(bench), 0, set[int]()

    async def count() -> None:
        nonlocal turns
        while view.looked_up < _PODS:
            seen.add(view.looked_up)
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await bench.get("/pods")
    await counting
    assert len(seen) > _PODS // 2
