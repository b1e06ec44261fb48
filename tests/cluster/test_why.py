"""`nodewright why` on a real cluster: the most common causes, each with its reason and advice."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from nodelib.command import run
from tests.builders.pods import BUSYBOX, container, manifest, sleeper
from tests.cluster.world import Object, World, condition, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_FOREVER = "sleep 3600 & wait"


def _command(*argv: str, **more: Any) -> Object:
    return {"name": "main", "image": BUSYBOX, "command": list(argv), **more}


def _pods() -> list[Object]:
    secret = {"name": "keys", "secret": {"secretName": "keys"}}
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "absent-folder"}}
    hook = {"preStop": {"exec": {"command": ["sleep", "300"]}}}
    probe = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    needs = {"requests": {"cpu": "900"}}
    setup = {**_command("sh", "-c", "echo no database >&2; exit 3"), "name": "setup"}
    kept = manifest("finalized")
    kept["metadata"]["finalizers"] = ["example.com/keep"]
    return [
        manifest("unschedulable", sleeper(resources=needs)),
        manifest("image", _command("true") | {"image": "registry.invalid/none/such:1"}),
        manifest("config", container(script=_FOREVER, envFrom=[{"configMapRef": {"name": "settings"}}])),
        manifest("secret", sleeper(volumeMounts=[{"name": "keys", "mountPath": "/keys"}]), volumes=[secret]),
        manifest("init", sleeper(), initContainers=[{**setup, "terminationMessagePolicy": "FallbackToLogsOnError"}]),
        manifest("probe", sleeper(readinessProbe=probe)),
        manifest("crash", _command("sh", "-c", "exit 7")),
        manifest("volume", sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}]), volumes=[claimed]),
        manifest(
            "oom", _command("sh", "-c", "x=a; while :; do x=$x$x$x; done", resources={"limits": {"memory": "16Mi"}})
        ),
        manifest("gate", sleeper(), readinessGates=[{"conditionType": "example.com/lb"}]),
        manifest("hook", sleeper(lifecycle=hook), terminationGracePeriodSeconds=600),
        kept,
    ]


# pod: (what it waits on, reason, part of the error, part of the advice, whether a next try or an end is known)
_EXPECTED = {
    "unschedulable": ("scheduler", "Unschedulable", "Insufficient cpu", "Ask for less cpu", False),
    "image": ("image of container main", "ImagePullBackOff", "registry.invalid", "cannot reach the registry", True),
    "config": ("container main", "CreateContainerConfigError", 'configmap "settings"', "Create ConfigMap", True),
    "secret": ("volumes", "FailedMount", 'secret "keys" not found', "Create Secret", True),
    "init": ("container setup", "CrashLoopBackOff", "exit code 3: no database", "--previous", True),
    "probe": ("container main", "ReadinessProbeFailed", "connection refused", "Nothing listens", True),
    "crash": ("container main", "CrashLoopBackOff", "exit code 7", " logs ", True),
    "volume": ("volumes", "FailedMount", "is not a directory", "Make it on the node", True),
    "oom": ("container main", "CrashLoopBackOff", "OOMKilled", "limit of 16Mi", True),
    "gate": ("readiness gates", "ReadinessGatesNotReady", "example.com/lb", "owns the gate", False),
    "hook": ("container main", "Stopping", "preStop hook is running", "SIGKILL at the latest", True),
    "finalized": ("finalizers", "Finalizers", "example.com/keep", "controllers that own", False),
}


async def _why(world: World) -> dict[str, Object]:
    argv = [sys.executable, "-m", "cli", "why", "--name", world.cluster.name, "--output", "json"]
    done = await run(argv, timeout=60, check=False)  # its status says that something is not well
    found = json.loads(done.text)["pods"]
    return {one["name"]: one for one in found if one["namespace"] == world.namespace}


def _fits(found: Object | None, expected: tuple[str, str, str, str, bool]) -> bool:
    on, reason, error, advice, later = expected
    return any(
        (wait["on"], wait["reason"]) == (on, reason)
        and error in wait["error"]
        and advice in wait["action"]
        and (wait["next_try"] is not None) is later
        for wait in (found or {}).get("waits", ())
    )


async def test_the_commonest_causes_each_with_reason_since_next_try_and_what_to_do(world: World) -> None:
    await _absent_folder(world)
    await asyncio.gather(*(world.create(one) for one in _pods()))
    for name in ("hook", "finalized"):
        await world.ready(name)
        await world.delete(name)
    seen: dict[str, Object] = {}

    async def all_explained() -> bool:
        seen.update(await _why(world))
        return all(_fits(seen.get(name), expected) for name, expected in _EXPECTED.items())

    try:
        await holds(all_explained, "each cause is reported", 60)
    except AssertionError:
        wrong = [name for name, expected in _EXPECTED.items() if not _fits(seen.get(name), expected)]
        pytest.fail(json.dumps({name: seen.get(name, {}).get("waits") for name in wrong}, indent=1))
    finally:
        keep = {"metadata": {"finalizers": None}}
        await world.api.patch(world.path("pods", "finalized"), keep, kind="merge")
        await world.delete("hook", grace=1)
        await world.api.delete("/api/v1/persistentvolumes/absent-folder")
    assert all(seen[name]["said_by"] == "node" for name in _EXPECTED if name not in ("unschedulable", "finalized"))


async def _absent_folder(world: World) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}
    claim = {"namespace": world.namespace, "name": "absent-folder"}
    path = {"path": "/nonexistent/folder", "type": "Directory"}
    volume: Object = {
        "metadata": {"name": "absent-folder"},
        "spec": {**spec, "hostPath": path, "claimRef": claim},
    }
    volume["spec"]["capacity"] = {"storage": "1Gi"}
    await world.api.post("/api/v1/persistentvolumes", volume)
    wanted = {**spec, "volumeName": "absent-folder", "resources": {"requests": {"storage": "1Gi"}}}
    body = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": claim["name"]}, "spec": wanted}
    await world.create(body)


async def test_a_timeline_tells_where_the_start_and_a_restart_went(world: World) -> None:
    """Sandbox with its network, volumes, image, container; then the probe that had it killed."""
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 2}
    await world.create(manifest("web", sleeper(livenessProbe=probe)))

    async def restarted() -> bool:
        (status,) = (await world.get("web"))["status"].get("containerStatuses") or [{}]
        return bool(status.get("restartCount"))

    await holds(restarted, "the container was restarted", 60)
    argv = [sys.executable, "-m", "cli", "why", f"{world.namespace}/web", "--name", world.cluster.name, "-o", "json"]
    (found,) = json.loads((await run(argv, timeout=60, check=False)).text)["pods"]
    # The probe fails again and again: the newest stop may be under way.
    steps = {(one["of"], one["step"]): one for one in found["timeline"] if one["seconds"] is not None}
    for step in [
        ("", "prepare"), ("prepare", "volumes"), ("prepare", "cgroup"), ("", "image main"), ("", "sandbox"),
        ("sandbox", "network"), ("", "start main"), ("start main", "create main"), ("", "stop main"),
        ("", "ended main"),
    ]:  # fmt: skip
        assert step in steps, step
    assert steps["sandbox", "network"]["seconds"] < steps["", "sandbox"]["seconds"]
    assert any("failed liveness probe" in end["why"] for end in found["ends"])


async def test_the_node_explains_its_pods_to_one_who_cannot_reach_the_api_server(world: World) -> None:
    await world.create(manifest("crash", _command("sh", "-c", "exit 7")))
    await world.until("crash", lambda one: condition(one, "Ready").get("status") == "False", "seen")
    argv = [
        sys.executable,
        "-m",
        "cli",
        "why",
        "--name",
        world.cluster.name,
        "-o",
        "json",
        "--kubeconfig",
        "/nonexistent",
    ]

    async def explained() -> bool:
        found = json.loads((await run(argv, timeout=60, check=False)).text)
        assert found["api"] != "answers"
        pods = {one["name"]: one for one in found["pods"] if one["namespace"] == world.namespace}
        return _fits(pods.get("crash"), _EXPECTED["crash"])

    await holds(explained, "the node alone explains it", 60)


async def test_a_pod_tells_what_it_costs_and_its_node_what_holds_its_image(world: World) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    needs = {"limits": {"cpu": "50m"}}
    busy = _command("sh", "-c", "while :; do :; done", resources=needs, readinessProbe=probe)
    await world.create(manifest("busy", busy))
    await world.ready("busy")

    async def explained() -> bool:
        argv = [sys.executable, "-m", "cli", "why", f"{world.namespace}/busy", "--name", world.cluster.name]
        (found,) = json.loads((await run([*argv, "-o", "json"], timeout=60, check=False)).text)["pods"]
        costs = {one["of"]: one for one in found["costs"]}
        assert costs["readinessProbe of main"]["figures"]["runs"] >= 1
        return "(limit 50m)" in costs.get("container main", {"told": ""})["told"]

    await holds(explained, "the throttling is reported", 60)
    node = (await world.get("busy"))["spec"]["nodeName"]
    argv = [sys.executable, "-m", "cli", "images", node, "--name", world.cluster.name, "-o", "json"]
    report = json.loads((await run(argv, timeout=60)).text)[node]
    [image] = [one for one in report["images"] if BUSYBOX in one["names"]]
    assert {"kind": "container", "who": f"{world.namespace}/busy[main]"} in image["holds"]
