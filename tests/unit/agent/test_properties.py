"""Whatever a pod's spec says: its worker lives, its neighbour runs, and once it is deleted nothing of it is left."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.pod_world import IMAGE, World
from tests.unit.agent.pods import Json

# A value that the API server lets through where it stands is among these; most of them are not let through anywhere.
_WORDS = ["", "x", "10m", "1Gi", "-1", "Always", "Never", "${A}", "$(B)", "/", "../..", "\u0000", "a" * 300]
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(_WORDS),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["name", "key", "x"]), st.text(max_size=3)),
)
_GONE = object()
_PROBE = {"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1}
_FIELD = {"fieldPath": "metadata.name"}
_SPEC: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 1,
    "activeDeadlineSeconds": 1000,
    "initContainers": [{"name": "first", "image": IMAGE, "restartPolicy": "Always", "startupProbe": _PROBE}],
    "containers": [
        {
            "name": "main",
            "image": IMAGE,
            "command": ["sleep"],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "livenessProbe": _PROBE,
            "readinessProbe": _PROBE,
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "postStart": {"exec": {"command": ["true"]}}},
            "securityContext": {"runAsUser": 1, "capabilities": {"add": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "x"}],
        }
    ],
    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "c", "configMap": {"name": "c"}}],
    "readinessGates": [{"conditionType": "lb"}],
    "tolerations": [{"operator": "Exists"}],
    "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}], "fsGroup": 1},
}


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(value, dict):
        found += [path for key, one in value.items() for path in _paths(one, (*at, key))]
    if isinstance(value, list):
        found += [path for index, one in enumerate(value) for path in _paths(one, (*at, index))]
    return found


_CHANGES = st.lists(
    st.tuples(st.sampled_from(_paths(_SPEC)), st.one_of(st.just(_GONE), _VALUES)), min_size=1, max_size=3
)


def _changed(changes: list[tuple[tuple[Any, ...], Any]]) -> Json:
    spec = copy.deepcopy(_SPEC)
    for path, value in changes:
        inner: Any = spec
        try:
            for key in path[:-1]:
                inner = inner[key]
            if value is _GONE:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken the place away
    return spec


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=_CHANGES)
def test_a_bad_spec_harms_nobody_else_and_can_be_deleted(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    asyncio.run(_lives_and_goes(_changed(changes)))


async def _lives_and_goes(spec: Json) -> None:
    world = World()
    await world.start_agent()
    try:
        world.api.create({"metadata": {"name": "bad", "namespace": "shop", "uid": "bad"}, "spec": spec})
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
        assert status["reason"] == "InvalidSpec" and "cannot be worked with" in status["message"]
        assert world.events.reasons().count("InvalidSpec") == 1
        world.api.ask_deletion("bad", 1)
        await world.until(lambda: "bad" not in world.api.pods, seconds=60)
    finally:
        await world.kill_agent()
