"""Limits of Events: one bucket for all requests (eventRecordQPS, eventBurst), one for each object, on any clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from agent.common.plan.event_series import event, merged, paced, spent
from agent.common.work.events import EventRecorder
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle

NOW = 1_767_225_600.0
POD = pod(container("app"), container("side")).raw


class Api:
    """Counts what is written, and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.at = clock, list[float]()

    async def post(self, path: str, body: Json) -> Json:
        self.at.append(self.clock.monotonic())
        return body

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json:
        return await self.post(path, body)


@contextlib.contextmanager
def running(recorder: EventRecorder) -> Iterator[None]:
    task = asyncio.ensure_future(recorder.run())
    try:
        yield
    finally:
        task.cancel()


def about(number: int) -> Json:
    return {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": f"p{number}", "uid": f"u{number}"}


async def test_requests_are_as_frequent_as_event_record_qps_and_event_burst_say() -> None:
    clock = FakeClock()
    api = Api(clock)
    recorder = EventRecorder(api, "n1", clock, qps=2, burst=3)
    for number in range(7):
        recorder.emit(about(number), "Normal", "Pulled", "done")
    with running(recorder):
        await settle()
        assert len(api.at) == 3
        await clock.advance(10)
    assert api.at == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5, 2.0])


async def test_a_qps_of_zero_is_no_limit() -> None:
    clock = FakeClock()
    api = Api(clock)
    recorder = EventRecorder(api, "n1", clock, qps=0, burst=1)
    for number in range(300):
        recorder.emit(about(number), "Normal", "Pulled", "done")
    with running(recorder):
        await settle(1000)
    assert len(api.at) == 300


def test_a_burst_of_zero_is_the_client_s_default_of_ten() -> None:
    bucket, waits = None, []
    for _ in range(12):
        bucket, wait = paced(bucket, 0.0, qps=1, burst=0)
        waits.append(wait)
    assert waits == pytest.approx([0] * 10 + [1, 2])


async def test_a_wall_clock_that_steps_back_mutes_no_object() -> None:
    """The bucket of an object is refilled by the time that has passed, whatever the wall clock says."""
    clock = FakeClock()
    api = Api(clock)
    recorder = EventRecorder(api, "n1", clock, qps=0, burst=1)
    with running(recorder):
        recorder.emit(POD, "Normal", "Pulled", "0")
        await settle()
        clock._now -= 2 * 86400
        for number in range(5):
            recorder.emit(POD, "Normal", f"Reason{number}", "x")
        await settle()
    assert len(api.at) == 6


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param(("app", "Normal"), ("side", "Normal"), True, id="containers of one pod share"),
        pytest.param(("app", "Normal"), ("app", "Warning"), False, id="types have their own"),
    ],
)
def test_what_shares_the_bucket_of_an_object(first: tuple[str, str], second: tuple[str, str], same: bool) -> None:
    one, other = (event(POD, kind, "R", "m", name, NOW) for name, kind in (first, second))
    assert (one.object_key == other.object_key) is same


def test_objects_without_a_uid_are_not_taken_for_each_other() -> None:
    one, other = (event({"kind": "Node", "name": name}, "Normal", "R", "m", "", NOW) for name in ("n1", "n2"))
    assert one.object_key != other.object_key and one.similar_key != other.similar_key


def test_messages_about_the_containers_of_a_pod_are_similar() -> None:
    """As EventAggregatorByReasonFunc: the field path is not part of the key."""
    known = None
    for number in range(10):
        name = ("app", "side")[number % 2]
        one, known = merged(event(POD, "Warning", "Failed", f"try {number}", name, NOW), known)
    assert one.combined
    assert (
        event(POD, "Warning", "F", "m", "app", NOW).similar_key
        == event(POD, "Warning", "F", "m", "side", NOW).similar_key
    )


def test_the_bucket_of_an_object_never_holds_more_than_it_can() -> None:
    bucket, allowed = spent(None, 0.0)
    assert allowed
    bucket, _ = spent(bucket, 1e9)
    assert bucket.tokens == 24
