"""The pods API on a real socket, above real workers of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.common.model.errors import PluginError
from agent.common.model.pods import Pod
from agent.plugins.edge.apis import PODS
from agent.plugins.edge.rpc import PluginClient
from agent.pods_api.edge.metrics import PodsApiMetrics
from agent.pods_api.edge.server import PodsApiServer
from agent.pods_api.model import Change, ServedPod
from agent.pods_api.plan.served import served
from agent.pods_api.work.answers import PodAnswers
from agent.pods_api.work.feed import PodFeed
from nodelib.plugin_apis.errors import Refused
from nodelib.tasks import cancel_and_wait
from nodelib.upstream.pod_encoding import pod_encoding
from tests.builders.pods import container, pod_json
from tests.fakes.pod_world import World
from tests.waiting import until

Event = tuple[Change, str, str]


class _Api:
    """A world with an agent, its pods API and a client."""

    def __init__(self, folder: Path) -> None:
        self.world, self.socket = World(), folder / "pods-api.sock"
        self.metrics, self.tasks = CollectorRegistry(), list[asyncio.Task[Any]]()
        self.client = PluginClient(PODS, "pods API", str(self.socket))

    async def start(self) -> None:
        await self.world.start_agent()
        encode, metrics = pod_encoding().encode, PodsApiMetrics(self.metrics)
        answers = PodAnswers(self.world.registry, PodFeed(encode, metrics.dropped), encode)
        answers.follow()
        server = PodsApiServer(str(self.socket), answers, metrics, monotonic=self.world.clock.monotonic)
        self.tasks.append(asyncio.create_task(server.run()))
        await until(self.socket.exists)

    def watch(self) -> list[Event]:
        """Events as they come: change, name, and the phase or "deleted"."""
        seen: list[Event] = []

        async def read() -> None:
            async with aclosing(self.client.stream("Pods.WatchPods", {})) as events:  # type: ignore[type-var]
                async for event in events:
                    pod = pod_encoding().decode(event["pod"])
                    state = "deleted" if pod.metadata.HasField("deletionTimestamp") else pod.status.phase
                    seen.append((Change(event["type"]), pod.metadata.name, state))

        self.tasks.append(asyncio.create_task(read()))
        return seen

    def metric(self, line: str) -> bool:
        return line in generate_latest(self.metrics).decode()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[_Api]:
    made = _Api(tmp_path)
    yield made
    await cancel_and_wait(*made.tasks)
    await made.client.close()
    await made.world.kill_agent()


_SYNCED = (Change.INITIAL_SYNC_COMPLETE, "", "")


async def test_a_pod_is_told_of_from_its_creation_to_its_end(api: _Api) -> None:
    await api.start()
    seen = api.watch()
    await until(lambda: seen == [_SYNCED])
    uid = api.world.create(container("main"))
    await api.world.until(lambda: api.world.status().get("phase") == "Running")
    await until(lambda: (Change.MODIFIED, "web", "Running") in seen)
    assert seen[1][:2] == (Change.ADDED, "web")
    assert [event for event in seen if event[0] is Change.ADDED] == seen[1:2], "it is added once"
    (pod,) = (await api.client.call("Pods.ListPods", {}, timeout=10))["pods"]
    assert pod_encoding().decode(pod).status.phase == "Running"
    answer = await api.client.call("Pods.GetPod", {"podUID": uid}, timeout=10)
    assert pod_encoding().decode(answer["pod"]).metadata.name == "web"

    api.world.api.ask_deletion(uid, 1)
    await api.world.until(lambda: uid not in api.world.registry.workers)
    await until(lambda: seen[-1][0] is Change.DELETED)
    assert (Change.MODIFIED, "web", "deleted") in seen
    assert [event[0] for event in seen].count(Change.DELETED) == 1
    terminating = [event[2] for event in seen].index("deleted")
    assert {event[2] for event in seen[terminating:-1]} == {"deleted"}, "it never looks alive again"
    assert (await api.client.call("Pods.ListPods", {}, timeout=10))["pods"] == []


async def test_a_changed_label_is_told_though_the_status_is_the_same(api: _Api) -> None:
    await api.start()
    uid = api.world.create(container("main"))
    await api.world.until(lambda: api.world.status().get("phase") == "Running")
    seen = api.watch()
    await until(lambda: seen == [(Change.ADDED, "web", "Running"), _SYNCED])
    raw = api.world.api.pods[uid]
    api.world.workers.on_pod("MODIFIED", {**raw, "metadata": {**raw["metadata"], "labels": {"a": "b"}}}, raw)
    await until(lambda: len(seen) > 2)
    assert seen[2] == (Change.MODIFIED, "web", "Running")
    api.world.registry.wake(uid)
    await asyncio.sleep(0.05)
    assert len(seen) == 3, "a status that is computed again and is the same is no event"


async def test_unknown_pods_and_an_agent_that_has_not_listed_yet(api: _Api) -> None:
    await api.start()
    with pytest.raises(PluginError) as error:
        await api.client.call("Pods.GetPod", {"podUID": "nobody"}, timeout=10)
    assert (error.value.code, error.value.message) == ("NOT_FOUND", "pod with UID nobody not found")
    api.world.registry.synced.clear()
    for method, asked in (("ListPods", {}), ("GetPod", {"podUID": "u1"})):
        with pytest.raises(PluginError) as error:
            await api.client.call(f"Pods.{method}", asked, timeout=10)
        assert error.value.code == "FAILED_PRECONDITION"
    with pytest.raises(PluginError) as error:
        async for _ in api.client.stream("Pods.WatchPods", {}):
            raise AssertionError("nothing is known yet")
    assert error.value.code == "FAILED_PRECONDITION"
    assert api.metric('kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1.0')
    assert api.metric(
        'kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="FailedPrecondition"} 1.0'
    )


async def test_calls_are_limited_in_rate(api: _Api) -> None:
    await api.start()
    for _ in range(10):
        await api.client.call("Pods.ListPods", {}, timeout=10)
    with pytest.raises(PluginError, match="rejected by rate limit"):
        await api.client.call("Pods.ListPods", {}, timeout=10)
    assert api.metric('kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="OK"} 10.0')


async def test_a_client_that_goes_makes_room_for_another(api: _Api) -> None:
    await api.start()
    first = [api.watch() for _ in range(64)]
    await until(lambda: all(first))
    with pytest.raises(PluginError) as error:
        async for _ in api.client.stream("Pods.WatchPods", {}):
            raise AssertionError("there are 64 already")
    assert error.value.code == "RESOURCE_EXHAUSTED"
    await cancel_and_wait(api.tasks.pop())
    name = 'kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="Canceled"} 1.0'
    await until(lambda: api.metric(name))
    seen = api.watch()
    await until(lambda: bool(seen))


def _one(number: int, uid: str = "u1") -> ServedPod:
    raw = pod_json("web", container("main"), meta={"namespace": "shop", "uid": uid})
    return ServedPod(Pod(raw), {"phase": "Running", "message": str(number)})


async def test_a_watcher_that_does_not_read_is_dropped_and_others_are_not() -> None:
    drops: list[None] = []
    feed = PodFeed(pod_encoding().encode, lambda: drops.append(None))
    slow, quick = feed.add([]), feed.add([])
    for number in range(101):
        feed.changed(_one(number))
        assert (await quick.next())[0] is (Change.MODIFIED if number else Change.ADDED)
    with pytest.raises(Refused, match="watch client channel closed"):
        await slow.next()
    assert len(drops) == 1
    feed.changed(_one(200))
    assert (await quick.next())[0] is Change.MODIFIED


async def test_what_waits_for_a_watcher_is_bounded_in_bytes() -> None:
    feed = PodFeed(lambda pod: b"x" * (4 << 20))
    watcher = feed.add([])
    for number in range(5):
        feed.changed(_one(number))
    with pytest.raises(Refused):
        await watcher.next()
    assert not watcher.waiting


async def test_an_ended_pod_is_deleted_once_for_those_who_knew_it() -> None:
    feed = PodFeed(pod_encoding().encode)
    early = feed.add([_one(0)])
    over = ServedPod(_one(0).pod, {"phase": "Succeeded"}, over=True)
    feed.changed(over)
    late = feed.add([over])
    feed.changed(over)
    feed.gone("u1")
    assert [event[0] for event in early.waiting] == [Change.DELETED]
    assert [event[0] for event in late.waiting] == [Change.DELETED]
    pod = pod_encoding().decode(early.waiting[0][1])
    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) == ("web", "shop", "u1")


def test_a_ready_status_of_the_api_alone_is_not_believed() -> None:
    raw = pod_json("web", container("main"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]}
    found = served(ServedPod(Pod({**raw, "status": status}), {}))["status"]
    assert found["conditions"][0]["status"] == "False" and found["conditions"][1] == {"type": "Initialized"}
    assert served(ServedPod(Pod(raw), {}))["status"]["phase"] == "Pending"
    own = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert served(ServedPod(Pod(raw), own))["status"] == own
