"""Enormous messages on their way to the API: a patch stays below 64 KiB, and what is refused is sent shorter."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.common.model.pods import Kind, ObservedPod, Pod
from agent.common.model.states import Waiting
from agent.common.work.events import EventRecorder
from agent.pods.plan.container_status import container_statuses
from agent.pods.plan.status_size import MOST, MOST_AFTER_REFUSAL, fitted
from agent.pods.work.status_manager import StatusManager
from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from tests.builders.metrics import metrics
from tests.fakes.clock import FakeClock, settle

_PATCH = 64 * 1024  # bytes
_HUGE = 16 << 20


def pod(containers: int = 1) -> Pod:
    meta: dict[str, Any] = {"uid": "u", "name": "p", "namespace": "n", "resourceVersion": "1"}
    made = [{"name": f"c{number}", "image": "i"} for number in range(containers)]
    return Pod({"metadata": meta, "spec": {"containers": made}})


class Api:
    """A server that refuses patches of more than `most` bytes with `error`, and applies the others."""

    def __init__(self, most: int, error: ApiError) -> None:
        self.most, self.error = most, error
        self.sizes: list[int] = []
        self.status: Json = {}

    async def patch_status(self, pod: Pod, patch: Json) -> Json:
        body = orjson.dumps(patch)
        self.sizes.append(len(body))
        await asyncio.sleep(0)
        if len(body) > self.most:
            raise self.error
        self.status |= patch["status"]
        return {"metadata": {"resourceVersion": str(len(self.sizes))}, "status": self.status}

    async def delete(self, pod: Pod) -> None: ...

    async def runtime_handler(self, class_name: str) -> str:
        return ""


def failed(text: str, containers: int = 1) -> Json:
    """The status of a pod whose containers all failed to start, as the plan makes it."""
    waiting = {f"c{number}": Waiting("PostStartHookError", text) for number in range(containers)}
    found = container_statuses(pod(containers), Kind.MAIN, ObservedPod("u"), {}, waiting, {})
    return {"phase": "Pending", "containerStatuses": found}


_TOO_LARGE = ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


@pytest.mark.parametrize(
    ("text", "containers"),
    [
        pytest.param("\x00" * _HUGE, 1, id="NULs"),
        pytest.param("\x00" * 5000, 60, id="NULs of many containers"),
        pytest.param("木" * _HUGE, 1, id="letters of three bytes"),
        pytest.param("\udcff" * 4096, 1, id="lone surrogates"),
        pytest.param("\udcff", 1, id="one surrogate"),
        pytest.param("short", 1, id="short"),
    ],
)
async def test_a_patch_is_below_64_kib(text: str, containers: int) -> None:
    api = Api(_PATCH, _TOO_LARGE)
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(containers), failed(text, containers))
    await asyncio.wait_for(manager.flush("u"), 10)
    assert len(api.sizes) == 1 and api.sizes[0] < _PATCH
    assert len(api.status["containerStatuses"]) == containers


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(_TOO_LARGE, id="API server"),
        pytest.param(ApiError(500, "", "etcdserver: request is too large"), id="etcd"),
        pytest.param(
            ApiError(500, "", "rpc error: trying to send message larger than max (2 vs. 1)"), id="client of etcd"
        ),
    ],
)
async def test_a_status_that_is_refused_as_too_large_is_sent_shorter(error: ApiError) -> None:
    """The object is large already, perhaps: what is below our own limit can be too much."""
    api = Api(12 * 1024, error)
    manager = StatusManager(api, FakeClock(), metrics())
    manager.set(pod(20), failed("x" * 4000, 20))
    await asyncio.wait_for(manager.flush("u"), 10)
    assert len(api.sizes) == 2 and api.sizes[1] <= api.most
    assert api.status["containerStatuses"][0]["state"]["waiting"]["message"].startswith("xxx")
    manager.set(pod(20), failed("x" * 4000, 20))
    await settle()
    assert len(api.sizes) == 2, "the same again is the same to the API server"


async def test_a_status_that_stays_refused_is_not_tried_all_the_time() -> None:
    clock = FakeClock()
    api = Api(0, ApiError(422, "Invalid", "status.x: Invalid value"))
    manager = StatusManager(api, clock, metrics())
    manager.set(pod(), failed("x"))
    await settle()
    for _ in range(360):
        await clock.advance(10)
        await settle()
    assert 10 < len(api.sizes) < 30, "an hour"
    api.most = _PATCH
    manager.set(pod(), failed("y"))
    await clock.advance(11)
    await settle()
    assert api.status["containerStatuses"][0]["state"]["waiting"]["message"] == "y", "another status goes out soon"
    await manager.close()


_ANY = st.text(st.characters(), max_size=20).map(lambda text: text * 500)
_STATE = st.dictionaries(st.sampled_from(["waiting", "terminated"]), st.fixed_dictionaries({"message": _ANY}))
_STATUS = st.fixed_dictionaries(
    {"message": _ANY},
    optional={
        "conditions": st.lists(st.fixed_dictionaries({"type": st.just("A"), "message": _ANY}), max_size=3),
        **{
            name: st.lists(st.fixed_dictionaries({"state": _STATE, "lastState": _STATE}), max_size=5)
            for name in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        },
    },
)


@given(_STATUS)
def test_any_status_can_be_sent(status: Any) -> None:
    found = fitted(status, MOST_AFTER_REFUSAL)
    assert list(found) == list(status)
    assert len(orjson.dumps(found)) <= MOST_AFTER_REFUSAL


def test_what_fits_is_not_touched() -> None:
    status = failed("ü\n" * 100, 3)
    assert fitted(status, MOST) == status
    assert len(json.dumps(fitted(failed("ü" * 4000, 30), MOST), ensure_ascii=False).encode()) <= MOST


class Events:
    def __init__(self) -> None:
        self.bodies: list[Json] = []

    async def post(self, path: str, body: Json) -> Json:
        self.bodies.append(orjson.loads(orjson.dumps(body)))
        return body

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json:
        return body


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\nb\tc", "a\nb\tc", id="lines stay"),
        pytest.param("\x1b[2Jx\x00", "\\x1b[2Jx\\x00", id="escapes of a terminal"),
        pytest.param("no file \udcff", "no file \\udcff", id="a file name that is no UTF-8"),
        pytest.param("x" * _HUGE, "x" * 1021 + "...", id="16 MiB"),
        pytest.param("\x00" * _HUGE, ("\\x00" * 1024)[:1021] + "...", id="16 MiB of NULs"),
    ],
)
async def test_the_message_of_an_event(text: str, shown: str) -> None:
    api = Events()
    recorder = EventRecorder(api, "node", FakeClock())
    recorder.emit(pod().raw, "Warning", "Unhealthy", text)
    await recorder.flush()
    assert [body["message"] for body in api.bodies] == [shown]
