"""Whatever a pod's spec says: its worker lives, its neighbour runs, and once it is deleted nothing of it is left."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings

from nodelib.json_values import Json
from tests.fakes.pod_world import IMAGE, World
from tests.unit.agent.changes import SPEC, TIMES, Change, changed, changes_of, typed_changes_of

# What the API server's validation lets a client, or another kubelet, leave there is less than this.
_AROUND: Json = {
    "metadata": {
        "labels": {"app": "web"},
        "annotations": {"kubernetes.io/config.source": "api", "x": "y"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "r", "controller": True}],
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 2,
        "podIP": "10.244.0.9",
        "podIPs": [{"ip": "10.244.0.9"}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 2,
                "containerID": "containerd://c9",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
                "ready": True,
            }
        ],
        "resize": "",
    },
}


@settings(max_examples=25 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=changes_of(SPEC))
def test_a_bad_spec_harms_nobody_else_and_can_be_deleted(changes: list[Change]) -> None:
    asyncio.run(_assert_it_lives_and_goes({"spec": changed(SPEC, changes)}))


@settings(max_examples=15 * TIMES, derandomize=TIMES == 1, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=typed_changes_of(_AROUND))
def test_bad_metadata_and_a_bad_status_do_no_more_harm(changes: list[Change]) -> None:
    around = changed(_AROUND, changes)
    meta = around.get("metadata")
    spec = {"containers": [{"name": "main", "image": IMAGE}], "terminationGracePeriodSeconds": 1}
    meta = {**(meta if isinstance(meta, dict) else {}), "name": "bad", "namespace": "shop", "uid": "bad"}
    asyncio.run(_assert_it_lives_and_goes({"spec": spec, "status": around.get("status"), "metadata": meta}))


async def _assert_it_lives_and_goes(raw: Json) -> None:
    world = World()
    await world.start_agent()
    try:
        world.api.create({"metadata": {"name": "bad", "namespace": "shop", "uid": "bad"}, **raw})
        good = world.create(name="good", uid="good")
        await world.until(lambda: world.phase(good) == "Running", seconds=30)
        if "bad" in world.api.pods:
            world.api.ask_deletion("bad", 1)
            await world.until(lambda: "bad" not in world.api.pods, seconds=60, step=2)
        assert world.phase(good) == "Running"
    finally:
        await world.kill_agent()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"containers": [{"name": "a", "image": "x", "resources": {"limits": [1]}}]}, id="limits"),
        pytest.param({"containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "x"}}}]}, id="cpu"),
        pytest.param({"containers": 3}, id="containers"),
        pytest.param(
            {"containers": [{"name": "a", "image": "x", "livenessProbe": {"periodSeconds": "x"}}]}, id="probe"
        ),
        pytest.param({"terminationGracePeriodSeconds": "soon"}, id="grace"),
    ],
)
async def test_a_spec_that_no_plan_can_be_made_of_fails_the_pod_and_says_why(change: Json) -> None:
    world = World()
    await world.start_agent()
    try:
        spec = {"containers": [{"name": "a", "image": IMAGE}], **change}
        world.api.create({"metadata": {"name": "bad", "namespace": "shop", "uid": "bad"}, "spec": spec})
        await world.until(lambda: world.phase("bad") == "Failed", seconds=30)
        status = world.status("bad")
        assert status["reason"] == "InvalidSpec" and "cannot be used" in status["message"]
        assert world.events.reasons().count("InvalidSpec") == 1
        world.api.ask_deletion("bad", 1)
        await world.until(lambda: "bad" not in world.api.pods, seconds=60)
    finally:
        await world.kill_agent()
