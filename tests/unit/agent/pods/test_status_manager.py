from __future__ import annotations

import asyncio
from typing import Any

from agent.common.model.pods import Json, Pod
from agent.pods.work.status_manager import StatusManager
from tests.builders.metrics import metrics
from tests.fakes.clock import FakeClock, settle


class KeepingApi:
    """A server that merges a status patch but never takes the fields it was told to keep."""

    def __init__(self, keeps: tuple[str, ...] = ()) -> None:
        self.keeps = keeps
        self.status: Json = {}
        self.version = 1
        self.calls = 0

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        self.calls += 1
        await asyncio.sleep(0)
        taken = {name: value for name, value in patch["status"].items() if name not in self.keeps}
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


async def test_a_field_that_the_server_keeps_is_not_sent_for_ever() -> None:
    api = KeepingApi(keeps=("allocatedResources",))
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), {"phase": "Running", "allocatedResources": {"cpu": "1"}})
    await asyncio.wait_for(manager.flush("u"), 10)
    await settle()
    assert api.status == {"phase": "Running"}
    assert api.calls <= 2


async def test_the_next_change_is_sent_all_the_same() -> None:
    api = KeepingApi(keeps=("allocatedResources",))
    manager = StatusManager(api, FakeClock(), metrics())
    for phase in ("Running", "Succeeded"):
        manager.set(pod(), {"phase": phase, "allocatedResources": {"cpu": "1"}})
        await asyncio.wait_for(manager.flush("u"), 10)
    assert api.status == {"phase": "Succeeded"}


async def test_changes_during_a_call_make_one_more_call() -> None:
    api = KeepingApi()
    manager = StatusManager(api, FakeClock(), metrics())
    for message in ("a", "b", "c"):
        manager.set(pod(), {"phase": "Pending", "message": message})
    await asyncio.wait_for(manager.flush("u"), 10)
    assert api.status == {"phase": "Pending", "message": "c"}
    assert api.calls <= 2


async def test_a_change_nobody_waits_for_goes_with_the_next_one() -> None:
    api, clock = KeepingApi(), FakeClock()
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


def waits(reason: str, **fields: Any) -> Json:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}, **fields}],
    }


async def test_that_a_pod_is_being_created_goes_with_what_comes_of_it() -> None:
    api = KeepingApi()
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), waits("ContainerCreating"))
    await settle()
    assert api.calls == 0
    manager.set(pod(), waits("ErrImagePull"))
    await settle()
    assert (api.calls, api.status) == (1, waits("ErrImagePull"))


async def test_that_a_pod_is_created_again_is_told_at_once() -> None:
    api = KeepingApi()
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(), waits("ContainerCreating", lastState={"terminated": {"exitCode": 1}}))
    await settle()
    assert api.calls == 1


async def test_a_change_nobody_waits_for_is_sent_before_long() -> None:
    api, clock = KeepingApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    manager.set(pod(), {"podIP": "10.0.0.7"})
    await settle()
    assert api.calls == 0
    await clock.advance(1.0)
    await settle()
    assert api.status == {"podIP": "10.0.0.7"}


async def test_of_a_pod_that_is_being_deleted_it_waits_for_the_end_of_its_containers() -> None:
    api, clock = KeepingApi(), FakeClock()
    manager = StatusManager(api, clock, metrics())
    going = Pod({**pod().raw, "metadata": {**pod().meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    manager.set(going, {"observedGeneration": 2})
    await clock.advance(2.0)
    await settle()
    assert api.calls == 0
    manager.set(going, {"observedGeneration": 2, "phase": "Failed"})
    await settle()
    assert (api.calls, api.status) == (1, {"observedGeneration": 2, "phase": "Failed"})
