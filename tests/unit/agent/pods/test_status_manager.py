"""What is sent to the API, when, and in how many calls."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.common.model.pods import Pod
from agent.pods.work.status_manager import StatusManager
from nodelib.json_values import Json
from tests.builders.metrics import metrics, series
from tests.fakes.clock import FakeClock, settle


class FakeApi:
    """A server that merges status patches but ignores the fields in `ignores`."""

    def __init__(self, ignores: tuple[str, ...] = ()) -> None:
        self.ignores = ignores
        self.status: Json = {}
        self.version = 1
        self.calls = 0

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        self.calls += 1
        await asyncio.sleep(0)
        taken = {name: value for name, value in patch["status"].items() if name not in self.ignores}
        if any(self.status.get(name) != value for name, value in taken.items()):
            self.version += 1
        self.status = {**self.status, **taken}
        return {"metadata": {"resourceVersion": str(self.version)}, "status": self.status}

    async def delete(self, pod: Pod) -> None: ...

    async def runtime_handler(self, class_name: str) -> str:
        return ""


def pod() -> Pod:
    meta: dict[str, Any] = {"uid": "u", "name": "p", "namespace": "n", "resourceVersion": "1"}
    return Pod({"metadata": meta, "spec": {"containers": []}})


async def test_a_field_that_the_server_ignores_is_not_sent_again() -> None:
    api = FakeApi(ignores=("allocatedResources",))
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), {"phase": "Running", "allocatedResources": {"cpu": "1"}})
    await asyncio.wait_for(manager.flush("u"), 10)
    await settle()
    assert (api.calls, api.status) == (2, {"phase": "Running"}), "once more to see that it is ignored"


async def test_the_next_change_is_still_sent() -> None:
    api = FakeApi(ignores=("allocatedResources",))
    manager = StatusManager(api, FakeClock(), metrics())
    for phase in ("Running", "Succeeded"):
        manager.set(pod(), {"phase": phase, "allocatedResources": {"cpu": "1"}})
        await asyncio.wait_for(manager.flush("u"), 10)
    assert api.status == {"phase": "Succeeded"}


async def test_changes_during_a_call_make_one_more_call() -> None:
    api = FakeApi()
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), {"phase": "Running", "message": "a"})
    for _ in range(20):
        if not api.calls:
            await asyncio.sleep(0)
    assert api.calls == 1
    for message in ("b", "c"):
        manager.set(pod(), {"phase": "Running", "message": message})
    await asyncio.wait_for(manager.flush("u"), 10)
    await settle()
    assert (api.calls, api.status) == (2, {"phase": "Running", "message": "c"})


async def test_a_change_nobody_waits_for_is_sent_with_the_next_one() -> None:
    api, clock = FakeApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    manager.set(pod(), {"phase": "Running"})
    await settle()
    assert api.calls == 1
    manager.set(pod(), {"phase": "Running", "podIP": "10.0.0.7"})
    await settle()
    assert api.calls == 1
    manager.set(pod(), {"phase": "Failed", "podIP": "10.0.0.7"})
    await settle()
    assert (api.calls, api.status) == (2, {"phase": "Failed", "podIP": "10.0.0.7"})


def creating(reason: str, **fields: Any) -> Json:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}, **fields}],
    }


async def test_container_creating_is_sent_with_what_follows_it() -> None:
    api = FakeApi()
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), creating("ContainerCreating"))
    await settle()
    assert api.calls == 0
    manager.set(pod(), creating("ErrImagePull"))
    await settle()
    assert (api.calls, api.status) == (1, creating("ErrImagePull"))


async def test_container_creating_after_a_first_attempt_is_sent_at_once() -> None:
    api = FakeApi()
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), creating("ContainerCreating", lastState={"terminated": {"exitCode": 1}}))
    await settle()
    assert api.calls == 1


async def test_a_change_nobody_waits_for_is_sent_soon() -> None:
    api, clock = FakeApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    manager.set(pod(), {"podIP": "10.0.0.7"})
    await settle()
    assert api.calls == 0
    await clock.advance(1.0)
    await settle()
    assert api.status == {"podIP": "10.0.0.7"}


async def test_a_deleted_pods_small_changes_wait_for_the_end_of_its_containers() -> None:
    api, clock = FakeApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    going = Pod({**pod().raw, "metadata": {**pod().meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    manager.set(going, {"observedGeneration": 2})
    await clock.advance(2.0)
    await settle()
    assert api.calls == 0
    manager.set(going, {"observedGeneration": 2, "phase": "Failed"})
    await settle()
    assert (api.calls, api.status) == (1, {"observedGeneration": 2, "phase": "Failed"})


def _status(**ended: int) -> Json:
    statuses = [
        {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error"}}} for name, code in ended.items()
    ]
    return {"containerStatuses": [*statuses, {"name": "other", "state": {"running": {}}}]}


async def test_an_end_that_is_shown_is_counted_once() -> None:
    measured = metrics()
    manager = StatusManager(FakeApi(), FakeClock(), measured)
    shown = Pod({**pod().raw, "status": _status(known=1)})  # by an agent before this one
    for status in (_status(known=1), _status(known=1, b=139), {**_status(known=1, b=139), "message": "x"}):
        manager.set(shown, status)
    assert series(measured, "kubelet_terminated_containers_total") == {("container", "139", "Error"): 1}
    running = {"containerStatuses": [{"name": "b", "state": {"running": {}}}]}
    init = {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}
    for status in (running, {**_status(b=139), **init}):
        manager.set(shown, status)
    assert series(measured, "kubelet_terminated_containers_total") == {
        ("container", "139", "Error"): 2,
        ("init_container", "0", "Completed"): 1,
    }
    await manager.close()


class LargePods(FakeApi):
    """Its pods are eight megabytes large: one stands for four of two megabytes."""

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        return {**await super().patch_status(pod, patch), "spec": {"text": "x" * 8_000_000}}


async def written_in(seconds: int, *managers: StatusManager, clock: FakeClock) -> None:
    """Each of these pods becomes ready, and unready again, every second."""
    for number in range(seconds):
        for manager in managers:
            manager.set(pod(), {"conditions": [{"type": "Ready", "status": str(number % 2 == 0)}]})
        await settle()
        await clock.advance(1)
        await settle()


async def test_the_statuses_of_a_large_pod_that_changes_every_second() -> None:
    """Each takes a tenth of a second of the event loop, as the answer has all of the pod."""
    api, clock = LargePods(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    await written_in(100, manager, clock=clock)
    assert 20 < api.calls < 35, "sixteen MiB at once, then two each second"
    await clock.advance(60)
    await asyncio.wait_for(manager.flush("u"), 10)
    assert api.status["conditions"][0]["status"] == "False", "the newest is sent in the end"


async def test_small_pods_wait_for_nobody() -> None:
    api, clock = FakeApi(), FakeClock()
    await written_in(100, StatusManager(api, clock, metrics()), clock=clock)
    assert api.calls == 100


async def test_a_cluster_that_was_restored_from_a_backup_gets_the_status_again() -> None:
    """Its versions are lower than those that the agent has seen, and its status may be an hour old."""
    api, clock = FakeApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    api.version = 1000
    manager.set(at_version(999, {}), {"phase": "Running"})
    await asyncio.wait_for(manager.flush("u"), 10)
    assert api.calls == 1 and manager.shown("u") == {"phase": "Running"}
    manager.set(at_version(999, {}), {"phase": "Running"})
    await settle()
    assert api.calls == 1, "the watch is behind our own patch"
    await clock.advance(120)
    api.version, api.status = 500, {"phase": "Pending"}
    manager.set(at_version(500, {"phase": "Pending"}), {"phase": "Running"})
    await asyncio.wait_for(manager.flush("u"), 10)
    assert (api.calls, api.status) == (2, {"phase": "Running"})
    await clock.advance(120)
    manager.set(Pod({**pod().raw, "metadata": {**pod().meta, "resourceVersion": None}}), {"phase": "Running"})
    await settle()
    assert api.calls == 2, "a static pod has no version"


def at_version(version: int, status: Json) -> Pod:
    return Pod({**pod().raw, "metadata": {**pod().meta, "resourceVersion": str(version)}, "status": status})
