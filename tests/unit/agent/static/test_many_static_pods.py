"""Thousands of manifests on a node, wherever they come from: what each pod that comes or goes costs the event loop."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.common.model.labels import CONFIG_HASH, CONFIG_MIRROR
from agent.common.model.pods import Pod
from agent.static.edge.manifests import ManifestFolder
from agent.static.model import ManifestFile
from agent.static.work.mirrors import MirrorHooks, MirrorPodManager, MirrorPods
from agent.static.work.sources import FileSource, ProblemReports
from agent.static.work.static_pods import StaticPods
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock

_MANY = 2000


class Pods:
    """Workers and registry: who was put is there."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}

    def put(self, pod: Pod) -> None:
        self.there[pod.uid] = SimpleNamespace(pod=pod, gone=False, has_successor=False)

    def remove(self, pod: Pod) -> None:
        self.there[pod.uid].gone = True

    def mark_synced(self, source: str, wanted: Any = ()) -> None: ...

    def memories(self) -> list[Any]:
        return list(self.there.values())

    def follow_removals(self, on_removed: Any) -> None:
        self.removed = on_removed

    def end(self, uid: str) -> None:
        del self.there[uid]
        self.removed(uid)


def static(number: int, uid: str = "") -> Pod:
    name, uid = f"web{number}-n1", uid or f"u{number}"
    made = pod(container(), meta={"name": name, "uid": uid, "annotations": {CONFIG_HASH: f"h{number}"}})
    return Pod(made.raw, "file")


def of_the_api(number: int) -> Pod:
    return pod(container(), meta={"name": f"web{number}-n1", "uid": f"api{number}"})


@pytest.fixture
def pods() -> Pods:
    made = Pods()
    for number in range(300):
        made.put(of_the_api(number))
    return made


def test_the_time_grows_with_the_number_of_pods(pods: Pods) -> None:
    """Each was looked for among all, and all of them for each pod that went, of whatever namespace: 2.7 s of the event
    loop for 1,000, and 1.0 s for each pod; four times as long for twice as many."""
    made = StaticPods(pods, pods)  # type: ignore[arg-type] # as much of both as is asked
    began = time.process_time()
    made.replace("file", [static(number) for number in range(_MANY)])
    assert time.process_time() - began < 0.5 and len(pods.there) == _MANY + 300
    began = time.process_time()
    for number in range(10):
        pods.end(f"api{number}")
    assert time.process_time() - began < 0.5


def test_each_starts_once_its_name_is_free(pods: Pods) -> None:
    made = StaticPods(pods, pods)  # type: ignore[arg-type] # as above
    made.replace("file", [static(1), static(2)])
    made.replace("file", [static(1, "other"), static(2)])
    made.replace("http", [static(1, "third")])
    assert "other" not in pods.there and "third" not in pods.there and pods.there["u1"].gone
    pods.end("api7")
    assert "other" not in pods.there
    pods.end("u1")
    assert "other" in pods.there and "third" not in pods.there
    assert {one.uid for one in made.wanted().values()} == {"other", "u2"}


def test_of_two_sources_with_one_uid_one_pod_starts(pods: Pods) -> None:
    """Both waited until a pod with their UID was gone, and each took the other's place then."""
    put = list[str]()
    made = StaticPods(pods, pods)  # type: ignore[arg-type] # as above
    pods.put(of_the_api(400))
    made.replace("file", [static(1, "api400")])
    made.replace("http", [static(2, "api400")])
    pods.put = lambda pod: (put.append(pod.full_name), Pods.put(pods, pod))  # type: ignore[method-assign, assignment, func-returns-value]
    pods.end("api400")
    assert len(put) == 1


class Refusing:
    """An API server where the namespace of these pods does not exist."""

    async def create(self, body: Json) -> Json:
        raise ApiError(404, "NotFound", "the namespace is not there")

    async def delete(self, pod: Pod) -> None: ...


async def test_thousands_of_mirror_pods_that_are_refused(pods: Pods) -> None:
    """The UIDs of all were collected for each of them: 0.6 s of the event loop in one turn for 2,000, each time."""
    made = StaticPods(pods, pods)  # type: ignore[arg-type] # as above
    events = SimpleNamespace(emit=lambda *_: None)
    hooks = MirrorHooks(lambda: "node", lambda: True, lambda uid: None, lambda uid: None)
    mirrors = MirrorPodManager(Refusing(), MirrorPods(), made, events, FakeClock(), hooks)  # type: ignore[arg-type] # one call
    made.replace("file", [static(number) for number in range(_MANY)])
    mirrors.api_synced()
    began = time.process_time()
    with pytest.raises(Temporary):
        await mirrors.sync()
    assert time.process_time() - began < 0.4


async def test_thousands_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was looked for in a list of all names, at each change of any."""
    folder = ManifestFolder(str(tmp_path), 100)
    names = [f"{number:05}.yaml" for number in range(10_000)]
    monkeypatch.setattr(os, "listdir", lambda path: names)
    monkeypatch.setattr(folder.__class__, "_file", lambda self, path: self._remember(path, (), ManifestFile(path)))
    await folder.read()
    began = time.process_time()
    assert len(await folder.read() or ()) == 10_000
    assert time.process_time() - began < 0.5


async def test_of_a_file_that_is_too_large_nothing_is_kept(tmp_path: Path) -> None:
    """Ten MiB of each of them stayed in the agent's memory."""
    (tmp_path / "a.yaml").write_bytes(b"x" * 101)
    (tmp_path / "b.yaml").write_bytes(b"x" * 100)
    large, right = await ManifestFolder(str(tmp_path), 100).read() or ()
    assert (large.data, large.problem) == (b"", "it is larger than 100 bytes") and right.data == b"x" * 100


class Deleting(Refusing):
    """Takes its time, and keeps those with finalizers."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.meanwhile: Any = lambda: None
        self.told: Any = None

    async def create(self, body: Json) -> Json:
        self.done.append(body["metadata"]["name"])
        return {**body, "metadata": {**body["metadata"], "uid": "new"}}

    async def delete(self, pod: Pod) -> None:
        self.done.append(pod.name)
        self.meanwhile()


async def test_a_mirror_does_not_wait_for_the_deletion_of_thousands(pods: Pods) -> None:
    """Of pods that say that they are mirrors, which whoever may create pods can make: all were deleted in one round."""
    made, api = StaticPods(pods, pods), Deleting()  # type: ignore[arg-type] # as above
    shown = MirrorPods()
    hooks = MirrorHooks(lambda: "node", lambda: True, lambda uid: None, lambda uid: None)
    mirrors = MirrorPodManager(api, shown, made, SimpleNamespace(), FakeClock(), hooks)  # type: ignore[arg-type] # no event
    for number in range(300):
        one = pod(
            container(), meta={"name": f"forged{number}", "uid": f"f{number}", "annotations": {CONFIG_MIRROR: "x"}}
        )
        mirrors.on_pod("ADDED", one.raw, None)
    mirrors.api_synced()
    api.meanwhile = lambda: made.replace("file", [static(7)])
    for _ in range(4):
        await mirrors.sync()
    assert api.done.index("web7-n1") <= 20
    assert len({name for name in api.done if name.startswith("forged")}) == 80, "others than those that stay"


class Racing(Deleting):
    """Somebody deletes the first mirror before the answer about its creation is there."""

    async def create(self, body: Json) -> Json:
        made = await super().create(body)
        if len(self.done) == 1:
            self.told("ADDED", made, None)
            self.told("DELETED", made, None)
        return made


async def test_a_mirror_that_is_deleted_while_it_is_made_is_made_again(pods: Pods) -> None:
    """It counted as there for ever: the API did not show the static pod, and policies kept it from its network."""
    made, api = StaticPods(pods, pods), Racing()  # type: ignore[arg-type] # as above
    hooks = MirrorHooks(lambda: "node", lambda: True, lambda uid: None, lambda uid: None)
    mirrors = MirrorPodManager(api, MirrorPods(), made, SimpleNamespace(), FakeClock(), hooks)  # type: ignore[arg-type] # no event
    api.told = mirrors.on_pod
    made.replace("file", [static(7)])
    mirrors.api_synced()
    for _ in range(3):
        await mirrors.sync()
    assert api.done == ["web7-n1"] * 2


async def test_all_forged_mirrors_go_a_few_at_a_time(pods: Pods) -> None:
    made, api = StaticPods(pods, pods), Deleting()  # type: ignore[arg-type] # as above
    clock, hooks = FakeClock(), MirrorHooks(lambda: "node", lambda: True, lambda uid: None, lambda uid: None)
    mirrors = MirrorPodManager(api, MirrorPods(), made, SimpleNamespace(), clock, hooks)  # type: ignore[arg-type] # no event
    for number in range(70):
        meta = {"name": f"forged{number}", "uid": f"f{number}", "annotations": {CONFIG_MIRROR: "x"}}
        mirrors.on_pod("ADDED", pod(container(), meta=meta).raw, None)
    mirrors.api_synced()
    task = asyncio.create_task(mirrors.run())
    await clock.advance(2)
    await cancel_and_wait(task)
    assert len(set(api.done)) == 70


async def test_manifests_that_change_all_the_time_have_a_part_of_the_time(pods: Pods) -> None:
    """Of a folder that takes half a second to read, changed without end: the agent did nothing else."""
    clock, reads = FakeClock(), list[float]()

    async def read() -> tuple[ManifestFile, ...]:
        reads.append(clock.monotonic())
        await clock.sleep(0.5)
        return ()

    async def wait(period: float) -> frozenset[str]:
        await clock.sleep(0.01)
        return frozenset()

    folder, changes = SimpleNamespace(path="/m", read=read), SimpleNamespace(renew=lambda: None, wait=wait)
    static_pods = StaticPods(pods, pods)  # type: ignore[arg-type] # as above
    problems = ProblemReports(lambda *_: None)
    source = FileSource(folder, changes, static_pods, problems, clock, node_name="n1", period=20)  # type: ignore[arg-type] # all that is asked
    task = asyncio.create_task(source.run())
    await clock.advance(20)
    await cancel_and_wait(task)
    assert 9 <= len(reads) <= 11, reads
