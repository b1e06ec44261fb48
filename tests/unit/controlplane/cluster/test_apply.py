"""What `up` and `join` apply: how long they go on with what the API server refuses."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from controlplane.cluster.work import workloads
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient
from tests.fakes.clock import FakeClock

_CLASS = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "local"}}


class _Refusing:
    """An API server that refuses with `error` for that many seconds."""

    def __init__(self, error: NodewrightError, seconds: float, clock: FakeClock) -> None:
        self._error, self._seconds, self._clock = error, seconds, clock
        self.applied: list[str] = []

    async def patch(self, path: str, body: object, kind: str, params: object) -> dict[str, Any]:
        if self._clock.monotonic() < self._seconds:
            raise self._error
        self.applied.append(path)
        return {}


@pytest.mark.parametrize(
    ("error", "seconds", "applied"),
    [
        pytest.param(ApiError(404, "NotFound", "not served yet"), 30.0, True, id="a definition that is served late"),
        pytest.param(ApiError(404, "NotFound", "never served"), 90.0, False, id="one that is never served"),
        pytest.param(ApiUnreachable("no answer"), 30.0, True, id="a server that starts slowly"),
        pytest.param(ApiError(403, "Forbidden", "no roles yet"), 5.0, True, id="roles that are not made yet"),
        pytest.param(ApiError(403, "Forbidden", "no rights"), 30.0, False, id="no rights: nobody waits for long"),
        pytest.param(ApiError(422, "Invalid", "nonsense"), 1.0, False, id="what is wrong is not tried again"),
    ],
)
async def test_what_may_only_come_too_early_is_tried_again(
    error: NodewrightError, seconds: float, applied: bool
) -> None:
    clock = FakeClock()
    server = _Refusing(error, seconds, clock)
    work = asyncio.create_task(workloads.apply(cast(KubeClient, server), [_CLASS], clock))
    for _ in range(100):
        await clock.advance(1.0)
        if work.done():
            break
    assert work.done()
    assert (work.exception() is None) == applied
    assert bool(server.applied) == applied


@pytest.mark.parametrize(
    ("error", "seconds", "patience", "gives_up"),
    [
        pytest.param(ApiUnreachable("no answer"), 60.0, 60.0, 60.0, id="up: nobody answers"),
        pytest.param(ApiUnreachable("no answer"), 60.0, 10.0, 10.0, id="join: nobody answers"),
        pytest.param(ApiError(404, "NotFound", "never served"), 60.0, 10.0, 10.0, id="join: never served"),
        pytest.param(ApiError(403, "Forbidden", "no rights"), 60.0, 60.0, 10.0, id="up: no rights"),
        pytest.param(ApiError(403, "Forbidden", "no rights"), 60.0, 5.0, 5.0, id="no rights, and less patience"),
    ],
)
async def test_how_long_the_caller_has_patience(
    error: NodewrightError, seconds: float, patience: float, gives_up: float
) -> None:
    clock = FakeClock()
    server = cast(KubeClient, _Refusing(error, seconds + 1, clock))
    work = asyncio.create_task(workloads.apply(server, [_CLASS], clock, patience=patience))
    await clock.advance(gives_up - 1.0)
    assert not work.done()
    await clock.advance(2.0)
    assert work.done() and work.exception() is not None
