"""Watches that bring much at once, or nothing for ever."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from nodelib.json_values import Json
from nodelib.kube import answers
from nodelib.kube import client as client_module
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiUnreachable, UnexpectedAnswer
from nodelib.kube.reflector import Reflector
from nodelib.kube.streaming_list import BREATH
from tests.waiting import until

PATH = "/api/v1/namespaces/mine/configmaps"
Write = Callable[[bytes], object]


def config_map(number: int, namespace: str = "mine") -> Json:
    meta = {"name": f"c{number}", "namespace": namespace, "uid": f"u{number}", "resourceVersion": str(number)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta}


def event(number: int, namespace: str = "mine") -> bytes:
    return orjson.dumps({"type": "ADDED", "object": config_map(number, namespace)}) + b"\n"


@asynccontextmanager
async def serving(watch: Callable[[Write, threading.Event], object], items: list[Json]) -> AsyncIterator[KubeClient]:
    """A server in other threads, with `items` in its list."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if "watch=true" in self.path:
                watch(self.wfile.write, over)
                return
            listed = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            self.wfile.write(orjson.dumps(listed))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    access = ClusterAccess(f"http://127.0.0.1:{server.server_port}")
    try:
        async with KubeClient(access, user_agent="test", streaming_lists=False) as client:
            yield client
    finally:
        over.set()
        await asyncio.to_thread(server.shutdown)
        server.server_close()


async def test_what_has_waited_comes_in_turns_with_others() -> None:
    """After a while without connection, or while the loop was busy, thousands of events are there at once."""
    turn, in_turn = 0, Counter[int]()

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def watch(write: Write, over: threading.Event) -> None:
        write(b"".join(map(event, range(2, 5002))))
        over.wait()

    def on_change(kind: str, item: Json, old: Json | None) -> None:
        in_turn[turn] += 1

    async with serving(watch, []) as client:
        reflector = Reflector(client, PATH, name="configmaps", on_change=on_change)
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(turns())]
        await until(lambda: len(reflector.store) == 5000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert max(in_turn.values()) <= BREATH


async def test_a_watch_that_trickles_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no silence. An API server ends a watch after the time that it was asked for."""
    monkeypatch.setattr(client_module, "_AFTER_ITS_END", 0.5)
    pieces = threading.Semaphore(0)

    def watch(write: Write, over: threading.Event) -> None:
        while not over.wait(0.1):
            write(b" ")
            pieces.release()

    async with serving(watch, []) as client:
        async with asyncio.timeout(10):
            with pytest.raises(ApiUnreachable, match="took too long"):
                async for _ in client.stream(PATH, {"timeoutSeconds": "1"}):
                    pass
    assert pieces.acquire(timeout=1)


async def test_a_list_of_another_namespace_is_not_the_one() -> None:
    """Something in front of the API server that mixes up answers."""
    async with serving(lambda write, over: None, [config_map(2, "other")]) as client:
        with pytest.raises(UnexpectedAnswer, match="other"):
            await client.get(PATH)


def test_an_object_of_another_namespace_is_not_the_one() -> None:
    """A pod would get another namespace's Secret."""
    for namespace, fits in (("mine", True), ("other", False)):
        raw = orjson.dumps(config_map(2, namespace))
        try:
            answers.success("GET", f"{PATH}/c2", {}, "application/json", raw)
        except answers.Unusable as error:
            assert not fits and "other" in str(error)
        else:
            assert fits


async def test_events_of_another_namespace_are_none() -> None:
    async with serving(lambda write, over: write(event(2, "other")), []) as client:
        with pytest.raises(UnexpectedAnswer, match="other"):
            async for _ in client.stream(PATH, {}):
                pass


async def test_a_list_with_an_object_of_another_kind_is_none() -> None:
    async with serving(lambda write, over: None, [config_map(2) | {"kind": "Secret"}]) as client:
        with pytest.raises(UnexpectedAnswer, match="Secret"):
            await client.get(PATH)
