"""A status is sent until the API server has it, once for each change, and never again when the server keeps a field."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.common.model.pods import Pod
from agent.pods.work.report import Reporter
from nodelib.json_values import Json
from tests.builders.metrics import metrics
from tests.builders.pods import pod
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


POD = pod(meta={"uid": "u", "resourceVersion": "1"})


async def test_a_field_that_the_server_keeps_is_not_sent_for_ever() -> None:
    api = KeepingApi(keeps=("allocatedResources",))
    reporter = Reporter(api, FakeClock(), metrics())
    reporter.set(POD, {"phase": "Running", "allocatedResources": {"cpu": "1"}})
    await asyncio.wait_for(reporter.flush("u"), 10)
    await settle()
    assert api.status == {"phase": "Running"}
    assert api.calls <= 2


async def test_the_next_change_is_sent_all_the_same() -> None:
    api = KeepingApi(keeps=("allocatedResources",))
    reporter = Reporter(api, FakeClock(), metrics())
    for phase in ("Running", "Succeeded"):
        reporter.set(POD, {"phase": phase, "allocatedResources": {"cpu": "1"}})
        await asyncio.wait_for(reporter.flush("u"), 10)
    assert api.status == {"phase": "Succeeded"}


async def test_changes_during_a_call_make_one_more_call() -> None:
    api = KeepingApi()
    reporter = Reporter(api, FakeClock(), metrics())
    for message in ("a", "b", "c"):
        reporter.set(POD, {"phase": "Pending", "message": message})
    await asyncio.wait_for(reporter.flush("u"), 10)
    assert api.status == {"phase": "Pending", "message": "c"}
    assert api.calls <= 2


async def test_a_change_nobody_waits_for_goes_with_the_next_one() -> None:
    api, clock = KeepingApi(), FakeClock()
    reporter = Reporter(api, clock, metrics())
    reporter.set(POD, {"phase": "Running"})
    await settle()
    assert api.calls == 1
    reporter.set(POD, {"phase": "Running", "podIP": "10.0.0.7"})
    await settle()
    assert api.calls == 1
    reporter.set(POD, {"phase": "Failed", "podIP": "10.0.0.7"})
    await settle()
    assert (api.calls, api.status) == (2, {"phase": "Failed", "podIP": "10.0.0.7"})


def waits(reason: str, **fields: Any) -> Json:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}, **fields}],
    }


async def test_that_a_pod_is_being_created_goes_with_what_comes_of_it() -> None:
    api = KeepingApi()
    reporter = Reporter(api, FakeClock(), metrics())
    reporter.set(POD, waits("ContainerCreating"))
    await settle()
    assert api.calls == 0
    reporter.set(POD, waits("ErrImagePull"))
    await settle()
    assert (api.calls, api.status) == (1, waits("ErrImagePull"))


async def test_that_a_pod_is_created_again_is_told_at_once() -> None:
    api = KeepingApi()
    reporter = Reporter(api, FakeClock(), metrics())
    reporter.set(POD, waits("ContainerCreating", lastState={"terminated": {"exitCode": 1}}))
    await settle()
    assert api.calls == 1


async def test_a_change_nobody_waits_for_is_sent_before_long() -> None:
    api, clock = KeepingApi(), FakeClock()
    reporter = Reporter(api, clock, metrics())
    reporter.set(POD, {"podIP": "10.0.0.7"})
    await settle()
    assert api.calls == 0
    await clock.advance(1.0)
    await settle()
    assert api.status == {"podIP": "10.0.0.7"}


async def test_of_a_pod_that_is_being_deleted_it_waits_for_the_end_of_its_containers() -> None:
    api, clock = KeepingApi(), FakeClock()
    reporter = Reporter(api, clock, metrics())
    going = Pod({**POD.raw, "metadata": {**POD.meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    reporter.set(going, {"observedGeneration": 2})
    await clock.advance(2.0)
    await settle()
    assert api.calls == 0
    reporter.set(going, {"observedGeneration": 2, "phase": "Failed"})
    await settle()
    assert (api.calls, api.status) == (1, {"observedGeneration": 2, "phase": "Failed"})
