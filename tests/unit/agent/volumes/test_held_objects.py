"""ConfigMaps of a megabyte each, hundreds of them, of which a pod shows one key each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.volumes.model.sources import CONFIG_MAP
from agent.volumes.work.held_objects import HeldObjects
from agent.volumes.work.polled_objects import PolledObjects
from agent.volumes.work.watched_objects import ObjectKey, WatchedObjects
from nodelib.clock import SystemClock
from nodelib.errors import Temporary
from nodelib.json_values import Json

MIB = 1 << 20


def key(name: str, namespace: str = "shop") -> ObjectKey:
    return ObjectKey(CONFIG_MAP, namespace, name)


class Api:
    """Every object is there, of `size` bytes."""

    def __init__(self, size: int = MIB) -> None:
        self.size = size
        self.version = 1

    async def get(self, path: str, params: object = None) -> Json:
        meta: Json = {"name": path.rpartition("/")[2], "uid": path, "resourceVersion": str(self.version)}
        found: Json = {"metadata": meta, "data": {"k": "x" * self.size}}
        return {"items": [found], "metadata": {"resourceVersion": "1"}} if params else found

    async def stream(self, *_: object) -> AsyncIterator[Json]:
        await asyncio.Event().wait()
        yield {}


def stores(api: Any) -> list[WatchedObjects | PolledObjects]:
    held, clock = HeldObjects(of_namespace=4 * MIB), SystemClock()
    return [
        WatchedObjects(api, clock, lambda uid: None, held=HeldObjects(of_namespace=4 * MIB)),
        PolledObjects(api, clock, lambda uid: None, period=60, ttl=lambda: 60.0, held=held),
    ]


@pytest.mark.parametrize("number", [0, 1], ids=["watched", "polled"])
async def test_a_namespace_has_so_much_and_others_have_theirs(number: int) -> None:
    """60 objects of 0.9 MB and very many keys took half a GB, and a pod may name a thousand."""
    api = Api()
    store = stores(api)[number]
    try:
        for one in range(3):
            await store.get("u1", key(f"c{one}"))
        with pytest.raises(Temporary, match="pods of namespace shop use more than 4 MiB"):
            await store.get("u1", key("c3"))
        assert await store.get("u2", key("c0", "other")) is not None
        assert await store.get("u1", key("c0")) is not None, "what was there stays"
        api.size = 10
        assert await store.get("u1", key("c3")) is not None, "and is asked for again: it may fit now"
    finally:
        await store.close()


async def test_there_is_room_again_when_a_pod_has_gone() -> None:
    store = stores(Api())[1]
    for one in range(3):
        await store.get("u1", key(f"c{one}"))
    store.drop_user("u1")
    for one in range(3, 6):
        assert await store.get("u2", key(f"c{one}")) is not None


def test_keys_count_too() -> None:
    held = HeldObjects(of_namespace=MIB)
    assert not held.fits("a", "shop", {"data": {f"{number:x}": "" for number in range(20_000)}})
    assert held.fits("a", "shop", {"data": {"k": "x" * 1000_000}})
    assert held.fits("a", "shop", {"data": {"k": "x" * 1000_000}}), "in the place of itself"
    assert not held.fits("b", "shop", {"binaryData": {"k": "x" * 100_000}})
    assert held.fits("a", "shop", None) and held.fits("b", "shop", {"binaryData": {"k": "x" * 100_000}})


def test_values_that_are_no_texts_are_counted_too() -> None:
    held = HeldObjects(of_namespace=1000)
    assert held.fits("a", "shop", {"data": {"n": 5, "none": None}, "binaryData": []})
    assert not held.fits("b", "shop", {"data": {"list": ["x" * 1000]}})
