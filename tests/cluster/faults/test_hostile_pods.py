"""Pods that attack their node: their neighbours, the heartbeat and new pods do not notice.

Each pod has the rights of any user's pod: no privileges, no host namespaces. The time that a new pod needs meanwhile is
compared with the quiet node's in the same run (the target is twice as long at most, docs/robustness.md); it is shown
and not asserted, as a busy machine would fail it for other reasons.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.builders.pods import container, manifest
from tests.cluster.faults.play import played, some
from tests.cluster.faults.promises import SEED, Fault, Site
from tests.cluster.world import Object, World, holds, state_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]
NODE = "node1"
_FILES = 1_000_000 if os.environ.get("NODEWRIGHT_SOAK") else 20_000
_LIMITS = {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "10m"}}
_EVERY_SECOND = {"periodSeconds": 1, "timeoutSeconds": 2}

# After this line of its log the pod is at work.
_BEGUN = "begun"
_DEEP = (
    "cd /scratch; i=0; while [ $i -lt 3000 ]; do mkdir d && cd d 2>/dev/null || break; i=$((i+1)); done;"
    " echo begun; sleep 3600"
)
_LONG = (
    "cd /scratch; n=$(head -c 250 /dev/zero | tr '\\0' x); i=0;"
    " while [ $i -lt 60 ]; do mkdir $n && cd $n 2>/dev/null || break; i=$((i+1)); done; echo begun; sleep 3600"
)
_MANY = (  # without a process for each file: half a core makes a million of them in a minute
    "cd /scratch; d=0; while [ $d -lt {folders} ]; do mkdir $d; i=0; d=$((d+1));"
    " while [ $i -lt 1000 ]; do : > $((d-1))/$i; i=$((i+1)); done; done; echo begun; sleep 3600"
)
_BOMB = "echo begun; bomb() { bomb | bomb & }; while :; do bomb; sleep 0.1; done"
_LOG = "echo begun; exec yes $(head -c 8000 /dev/zero | tr '\\0' y)"
_FIFOS = "cd /scratch; for i in $(seq 200); do mkfifo f$i; done; ln -s /dev/zero zero; echo begun; sleep 3600"
_RACE = "cd /scratch; echo begun; while :; do ln -sfn / swap; rm -f swap; mkdir -p swap; rmdir swap; done"
_SPIN = "echo begun; for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"
_CONNECT = (
    "echo begun; while :; do for i in 1 2 3 4 5 6 7 8; do nc -w 1 $NODE_IP 10250 </dev/zero & done; sleep 0.2; done"
)


def hostile(name: str, script: str, **fields: Any) -> Object:
    """A pod with a scratch volume that runs the script."""
    address = {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    box = container(
        resources=_LIMITS,
        env=[address],
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        **fields,
    )
    box["command"] = ["sh", "-c", script]
    return manifest(name, box, nodeName=NODE, volumes=[{"name": "scratch", "emptyDir": {}}])


def _probe(**handler: Any) -> dict[str, Any]:
    return {"readinessProbe": {**handler, **_EVERY_SECOND}, "livenessProbe": {**handler, **_EVERY_SECOND}}


_IDLE = "echo begun; sleep 3600"
_ENDLESS = "head -c 16777216 /dev/zero | tr '\\0' z"
_SERVE = "mkdir /www; head -c 16777216 /dev/zero >/www/index.html; echo begun; exec httpd -f -p 8080 -h /www"
_END = "echo begun; sleep 2; head -c 16777216 /dev/zero | tr '\\0' t > /dev/termination-log; exit 1"
_HOOK = {"postStart": {"exec": {"command": ["sh", "-c", f"{_ENDLESS}; exit 1"]}}}

PODS: dict[str, Object] = {
    "3,000 nested folders": hostile("deep", _DEEP),
    "paths of 4,000 characters": hostile("long", _LONG),
    f"{_FILES:,} files": hostile("many", _MANY.format(folders=_FILES // 1000)),
    "FIFOs and links to devices": hostile("fifos", _FIFOS),
    "a folder that is swapped for a link": hostile("race", _RACE),
    "a fork bomb": hostile("bomb", _BOMB),
    "eight busy loops": hostile("spin", _SPIN),
    "a log without end": hostile("log", _LOG),
    "16 MiB from an exec probe": hostile("exec", _IDLE, **_probe(exec={"command": ["sh", "-c", _ENDLESS]})),
    "16 MiB from an HTTP probe": hostile("http", _SERVE, **_probe(httpGet={"port": 8080})),
    "16 MiB as termination message": hostile("end", _END),
    "16 MiB from a hook that fails": hostile("hook", _IDLE, lifecycle=_HOOK),
    "a flood of connections to the kubelet": hostile("flood", _CONNECT),
}


async def test_hostile_pods(world: World) -> None:
    quiet = Fault("a quiet node", "hostile pod", contextlib.nullcontext, starts_pods=True)
    attacks = [
        Fault(name, "hostile pod", lambda obj=obj: _attacked(world, obj), lasts=8, starts_pods=True)  # type: ignore[misc]
        for name, obj in PODS.items()
    ]
    await played(Site(world, NODE), [quiet, *some(attacks, SEED, 4)])


@contextlib.asynccontextmanager
async def _attacked(world: World, obj: Object) -> AsyncIterator[None]:
    """The pod is at work for the block; then it is deleted, and it has to be gone."""
    name = obj["metadata"]["name"]
    await world.create(obj)
    await world.until(name, _has_started, "its container has started", 300)
    if name != "hook":
        await _says(world, name)
    try:
        yield
    finally:
        await world.delete(name)
        await world.gone(name, seconds=300)


def _has_started(obj: Object) -> bool:
    return state_of(obj)[0] in ("running", "terminated") or bool(
        obj["status"].get("containerStatuses") and obj["status"]["containerStatuses"][0]["restartCount"]
    )


async def _says(world: World, name: str) -> None:
    async def begun() -> bool:
        done = await world.kubectl("logs", name, "--limit-bytes=4096", check=False)
        return _BEGUN in done.text

    await holds(begun, f"{name} has begun", 600)
