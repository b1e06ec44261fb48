"""Pods of a megabyte, whose encoding takes nearly a tenth of a second, and that change as fast as they can."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from agent.common.model.pods import Pod
from agent.pods_api.model import Change, ServedPod
from agent.pods_api.work.feed import PodFeed, Watcher
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from nodelib.upstream.pod_encoding import pod_encoding
from tests.builders.pods import container, pod_json
from tests.waiting import until


def _pod(uid: str, message: str, mounts: int = 1000, *, over: bool = False) -> ServedPod:
    listed = [{"name": "v", "mountPath": f"/a/path/that/is/long/{number}"} for number in range(mounts)]
    raw = pod_json("web", container("main", volumeMounts=listed), meta={"namespace": "shop", "uid": uid})
    return ServedPod(Pod(raw), {"phase": "Running", "message": message}, over)


class World:
    """`threads`: those in which pods were encoded, and of which; `gate` holds up those that are not the loop's."""

    def __init__(self) -> None:
        self.threads: list[tuple[int, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.feed = PodFeed(self._encode)
        self.own = threading.get_ident()

    def _encode(self, pod: Json) -> bytes:
        self.threads.append((threading.get_ident(), pod["metadata"]["uid"]))
        if threading.get_ident() != self.own:
            self.gate.wait(10)
        return pod_encoding().encode(pod)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    task = asyncio.create_task(made.feed.run())
    yield made
    made.gate.set()
    await cancel_and_wait(task)


def _sent(watcher: Watcher) -> list[tuple[Change, str]]:
    decoded = [(change, pod_encoding().decode(data)) for change, data in watcher.waiting]
    return [(change, pod.status.message) for change, pod in decoded]


async def test_the_event_loop_encodes_no_large_pod(world: World) -> None:
    """Each change of one of 1.4 MB held it for 0.06 to 0.09 s, where anybody watches the pods."""
    watcher = world.feed.add([])
    world.feed.changed(_pod("small", "s", mounts=1))
    world.feed.changed(_pod("large", "l"))
    await until(lambda: len(watcher.waiting) == 2, 5)
    assert _sent(watcher) == [(Change.ADDED, "s"), (Change.ADDED, "l")]
    assert [uid for thread, uid in world.threads if thread == world.own] == ["small"]


async def test_of_many_changes_the_newest_is_sent(world: World) -> None:
    world.gate.clear()
    watcher = world.feed.add([])
    world.feed.changed(_pod("large", "0"))
    await until(lambda: len(world.threads) == 1, 5)
    for number in range(1, 50):
        world.feed.changed(_pod("large", str(number)))
    world.feed.changed(_pod("large", "small by now", mounts=1))
    world.gate.set()
    await until(lambda: len(watcher.waiting) == 2, 5)
    assert _sent(watcher) == [(Change.ADDED, "0"), (Change.MODIFIED, "small by now")]


async def test_what_has_gone_is_not_told_afterwards(world: World) -> None:
    world.gate.clear()
    watcher = world.feed.add([_pod("first", ""), _pod("second", "")])
    world.feed.changed(_pod("first", "1"))
    await until(lambda: len(world.threads) == 1, 5)
    world.feed.changed(_pod("second", "2"))
    world.feed.changed(_pod("second", "2", over=True))
    world.feed.gone("first")
    world.gate.set()
    world.feed.changed(_pod("last", "3"))
    await until(lambda: len(watcher.waiting) == 3, 5)
    assert [change for change, _ in _sent(watcher)] == [Change.DELETED, Change.DELETED, Change.ADDED]


async def test_whoever_begins_to_watch_is_told_nothing_older_than_what_he_knows(world: World) -> None:
    world.gate.clear()
    first = world.feed.add([])
    world.feed.changed(_pod("large", "1"))
    await until(lambda: len(world.threads) == 1, 5)
    world.feed.changed(_pod("large", "2"))
    second = world.feed.add([_pod("large", "2")])
    world.gate.set()
    await until(lambda: len(first.waiting) == 2, 5)
    assert _sent(first) == [(Change.ADDED, "1"), (Change.MODIFIED, "2")]
    assert (Change.MODIFIED, "1") not in _sent(second)


async def test_a_number_that_json_cannot_have_ends_no_worker(world: World) -> None:
    """A manifest of a static pod may have any number: changed() raised TypeError, which ended the pod's worker."""
    raw = pod_json("web", container("main"), meta={"uid": "odd"}, activeDeadlineSeconds=2**70)
    watcher = world.feed.add([])
    world.feed.changed(ServedPod(Pod(raw), {}))
    world.feed.changed(_pod("large", "l"))
    await until(lambda: bool(watcher.waiting), 5)
    assert _sent(watcher) == [(Change.ADDED, "l")]
