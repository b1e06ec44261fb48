"""The pod world with a directory of manifests and an API that takes mirror pods."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from agent.common.model.pods import Pod
from agent.pods.plan.mirrors import is_mirror
from agent.static.model import ManifestFile
from agent.static.work.mirrors import MirrorHooks, MirrorPodManager, MirrorPods
from agent.static.work.sources import FileSource, ProblemReports
from agent.static.work.static_pods import StaticPods
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from tests.fakes.clock import settle
from tests.fakes.pod_world import FakePodsApi, World


class FakeFolder:
    """`files` None: the directory is not there."""

    path = "/manifests"

    def __init__(self) -> None:
        self.files: dict[str, bytes] | None = {}
        self._known: dict[str, ManifestFile] = {}

    async def read(self) -> tuple[ManifestFile, ...] | None:
        if self.files is None:
            return None
        fresh = {name: ManifestFile(f"{self.path}/{name}", data) for name, data in sorted(self.files.items())}
        self._known = {name: known if (known := self._known.get(name)) == one else one for name, one in fresh.items()}
        return tuple(self._known.values())


class FakeChanges:
    """Changes come when the test says so; a timeout never does."""

    def __init__(self) -> None:
        self.deleted: set[str] = set()
        self._changed = asyncio.Event()
        self._all_read = asyncio.Event()

    def renew(self) -> None:
        return

    def notify(self, *deleted: str) -> None:
        self.deleted |= set(deleted)
        self._all_read.clear()
        self._changed.set()

    async def wait(self, timeout: float) -> frozenset[str]:
        if not self._changed.is_set():
            self._all_read.set()
        await self._changed.wait()
        self._changed.clear()
        found, self.deleted = frozenset(self.deleted), set()
        return found

    async def all_read(self) -> None:
        """Until the source has read every change: it decodes manifests in a thread, which no fake clock drives."""
        await asyncio.wait_for(self._all_read.wait(), 60)


class MirrorApi:
    """Creates pods as an API server does: with a UID of its own, one pod for each name."""

    def __init__(self, pods: FakePodsApi) -> None:
        self.pods = pods
        self.refusals: list[Exception] = []

    async def create(self, body: Json) -> Json:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        meta = body["metadata"]
        name = meta["namespace"], meta["name"]
        if any((raw["metadata"]["namespace"], raw["metadata"]["name"]) == name for raw in self.pods.pods.values()):
            raise ApiError(409, "AlreadyExists", "it is there")
        made = self.pods.create({**body, "metadata": {**meta, "uid": str(uuid.uuid4())}})
        return made.raw

    async def delete(self, pod: Pod) -> None:
        await self.pods.delete(pod)


class StaticWorld(World):
    """`write()` and `remove()` manifests; `mirror_of(name)` is what the API shows."""

    def __init__(self) -> None:
        super().__init__()
        self.sources = ("api", "file")
        self.folder, self.changes = FakeFolder(), FakeChanges()
        self.mirror_api = MirrorApi(self.api)
        self.problems: list[tuple[bool, str]] = []
        self.node_uid = "node-uid"

    def mirror(self, pod: Pod) -> Pod | None:
        return self.mirror_pods.of(pod)

    def connected(self) -> Callable[[str, Json, Json | None], None]:
        self.mirror_pods = MirrorPods()
        self.static = StaticPods(self.workers, self.registry, self.metrics.restarted_pods.labels("true").inc)
        self.mirrors = MirrorPodManager(
            self.mirror_api,
            self.mirror_pods,
            self.static,
            self.events,
            self.clock,
            MirrorHooks(
                lambda: self.node_uid, self.registry.synced.is_set, self.registry.wake, self.deps.status.manager.remove
            ),
        )
        self.source = FileSource(
            self.folder,
            self.changes,
            self.static,
            ProblemReports(lambda bad, text: self.problems.append((bad, text))),
            self.clock,
            node_name="n1",
            period=20,
        )
        return self._on_api_pod

    def further_works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        self.mirrors.api_synced()
        return [self.source.run, self.mirrors.run]

    def _on_api_pod(self, change: str, raw: Json, old: Json | None) -> None:
        (self.mirrors.on_pod if is_mirror(raw) else self.workers.on_pod)(change, raw, old)

    async def write(self, file: str, text: str | bytes) -> None:
        assert self.folder.files is not None
        self.folder.files[file] = text.encode() if isinstance(text, str) else text
        self.changes.notify()
        await self.changes.all_read()
        await settle()

    async def remove(self, file: str) -> None:
        assert self.folder.files is not None
        del self.folder.files[file]
        self.changes.notify(file)
        await self.changes.all_read()
        await settle()

    def mirror_of(self, name: str) -> Json | None:
        return next((raw for raw in self.api.pods.values() if raw["metadata"]["name"] == name), None)

    def mirror_phase(self, name: str) -> str:
        found = self.mirror_of(name)
        return str(found["status"].get("phase", "")) if found else ""
