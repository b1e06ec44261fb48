"""The methods of pods v1alpha1 (pkg/kubelet/apis/pods/server.go)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import contextmanager
from typing import Any

from agent.pods.work.memory import PodMemory
from agent.pods.work.registry import PodRegistry
from agent.pods_api.model import Change, ServedPod
from agent.pods_api.plan.served import is_large, served
from agent.pods_api.work.feed import PodFeed, Watcher
from nodelib.errors import NotFound
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.plugin_apis.server import MOST
from nodelib.threads import in_thread_if

_ENCODED_AT_ONCE = 4  # pods that are encoded before the event loop gets a turn: some milliseconds


class PodAnswers:
    """Answers from the registry's view. Before every source has listed its pods, nothing is answered.

    follow() connects the feed of changes with the registry, once.
    """

    def __init__(self, registry: PodRegistry, feed: PodFeed, encode: Callable[[Json], bytes]) -> None:
        self._registry, self._feed, self._encode = registry, feed, encode

    def follow(self) -> None:
        """Tell the watchers from now on what becomes of the pods."""
        self._registry.follow_changes(lambda memory: self._feed.changed(_served(memory)))
        self._registry.follow_removals(self._feed.gone)

    async def list_pods(self, request: Mapping[str, Any]) -> Json:
        """Raises Refused."""
        self._check_ready()
        found: list[bytes] = []
        size = 0
        for number, one in enumerate(self._known(), 1):
            found.append(await self._encoded(one))
            size += len(found[-1])
            if size > MOST - 1024 * 1024:
                raise Refused("RESOURCE_EXHAUSTED", "the pods are too large for one message: use WatchPods")
            await _turn(number)
        return {"pods": found}

    async def get_pod(self, request: Mapping[str, Any]) -> Json:
        """Raises NotFound and Refused."""
        self._check_ready()
        uid = str(request["podUID"])
        found = next((one for one in self._known() if one.pod.uid == uid), None)
        if found is None:
            raise NotFound(f"pod with UID {uid[:253]} not found")
        return {"pod": await self._encoded(found)}

    async def watch_pods(self, request: Mapping[str, Any]) -> AsyncGenerator[Json]:
        """All pods, then what changes, until the client goes. Raises Refused."""
        self._check_ready()
        known = self._known()
        with self._watching(known) as watcher:
            for number, one in enumerate(known, 1):
                yield {"type": Change.ADDED, "pod": await self._encoded(one)}
                await _turn(number)
            yield {"type": Change.INITIAL_SYNC_COMPLETE}
            while True:
                change, data = await watcher.next()
                yield {"type": change, "pod": data}

    async def run(self) -> None:
        """Until cancelled: tell the watchers of large pods."""
        await self._feed.run()

    async def _encoded(self, one: ServedPod) -> bytes:
        return await in_thread_if(is_large(one.pod), self._encode, served(one))

    @contextmanager
    def _watching(self, known: list[ServedPod]) -> Any:
        watcher: Watcher = self._feed.add(known)
        try:
            yield watcher
        finally:
            self._feed.remove(watcher)

    def _check_ready(self) -> None:
        if not self._registry.synced.is_set():
            raise Refused("FAILED_PRECONDITION", "Kubelet is initializing")

    def _known(self) -> list[ServedPod]:
        managed = [_served(memory) for memory in self._registry.memories() if memory.pod.source != "runtime"]
        unmanaged = [ServedPod(pod, {}) for pod in tuple(self._registry.unmanaged.values())]
        return sorted((*managed, *unmanaged), key=lambda one: one.pod.uid)


def _served(memory: PodMemory) -> ServedPod:
    return ServedPod(memory.desired, memory.status, memory.released)


async def _turn(number: int) -> None:
    if number % _ENCODED_AT_ONCE == 0:
        await asyncio.sleep(0)
