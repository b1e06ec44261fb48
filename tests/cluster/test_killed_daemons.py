"""A daemon of a node may be killed at any moment: running pods do not notice, and interrupted work continues.

Meanwhile the demo is requested all the time, through its ClusterIP (from a node and from a pod) and its NodePort on
both nodes (from outside), every request on a new connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from agent.common.model.pods import RunState
from controlplane.cluster.plan.manifests import DEMO_NODE_PORT
from tests.builders.pods import manifest, sleeper
from tests.cluster.world import Object, World, containers_of, holds, is_ready, load, status_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"
_KILLS = 3
_STARTS = "/run/nodewright-test-starts"


@dataclass
class Flips:
    """What a watch saw and should not have seen."""

    seen: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def watched(world: World) -> AsyncIterator[Flips]:
    """Every version of the demo's pods, the DNS pods and the Nodes is checked: each has to be Ready."""
    flips = Flips()

    async def watch(path: str, params: dict[str, str]) -> None:
        while True:
            async for event in world.api.stream(path, params):
                obj = event["object"]
                if event["type"] == "DELETED" or not is_ready(obj):
                    why = {one["type"]: one for one in obj["status"].get("conditions", [])}.get("Ready")
                    flips.seen.append(f"{event['type']} {obj['metadata']['name']}: {why}")

    watches = [
        asyncio.create_task(watch("/api/v1/namespaces/default/pods", {"labelSelector": "app=demo"})),
        asyncio.create_task(watch("/api/v1/namespaces/kube-system/pods", {"labelSelector": "k8s-app=kube-dns"})),
        asyncio.create_task(watch("/api/v1/nodes", {})),
    ]
    try:
        yield flips
    finally:
        for one in watches:
            one.cancel()
        ends = await asyncio.gather(*watches, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


async def resident(world: World) -> list[Object]:
    """The pods that were there before any test."""
    return [*await world.pods("app=demo", "default"), *await world.pods("k8s-app=kube-dns", "kube-system")]


@pytest.mark.parametrize("program", ["agent", "proxy", "containerd"])
async def test_a_killed_daemon_disturbs_nobody(world: World, program: str) -> None:
    before = await resident(world)
    assert all(is_ready(one) for one in before)
    ids = containers_of(before)
    address = (await world.get("demo", "services", "default"))["spec"]["clusterIP"]
    cluster_ip = [f"http://{address}/hostname"]
    node_ports = [f"http://{one.address}:{DEMO_NODE_PORT}/hostname" for one in world.cluster.nodes]
    demo = next(one for one in before if one["metadata"]["namespace"] == "default")
    from_pod = await world.pod_net(demo)
    with (
        load(node_ports) as outside,
        load(cluster_ip, net=world.cluster.namespace(NODE, "net")) as on_node,
        load(cluster_ip, net=from_pod) as in_pod,
    ):
        async with watched(world) as flips:
            for turn in range(_KILLS):
                began = time.monotonic()
                await world.kill(NODE, program)
                name = f"after-{turn}"
                await world.run(manifest(name, nodeName=NODE))
                took = time.monotonic() - began
                world.stats.append((f"{program} killed -> a new pod is Ready ({turn + 1})", f"{took:.2f} s"))
                assert status_of(await world.get(name))["restartCount"] == 0
                await world.delete(name)
                await world.gone(name)
            await world.agent_well(NODE)
        results = {"NodePort": outside.stop(), "ClusterIP, node": on_node.stop(), "ClusterIP, pod": in_pod.stop()}
    for way, result in results.items():
        text = f"{result['asked']} asked, {len(result['failed'])} failed, slowest {result['slowest']:.2f} s"
        world.stats.append((f"{program} killed {_KILLS} times, {way}", text))
    assert flips.seen == []
    after = await resident(world)
    assert containers_of(after) == ids
    assert [result["failed"] for result in results.values()] == [[], [], []]
    for result in results.values():
        assert len(result["by"]) == 2  # pods of both nodes have answered


def counting(name: str) -> Object:
    """A pod that records every start of its container on the node."""
    mounts = [{"name": "starts", "mountPath": "/starts"}]
    box = sleeper(volumeMounts=mounts)
    box["command"][2] = f"echo start >> /starts/{name}\n" + box["command"][2]
    volumes = [{"name": "starts", "hostPath": {"path": _STARTS, "type": "DirectoryOrCreate"}}]
    return manifest(name, box, nodeName=NODE, volumes=volumes)


@pytest.mark.parametrize("program", ["agent", "containerd"])
async def test_a_kill_in_the_middle_of_work_starts_nothing_twice(world: World, program: str) -> None:
    """Killed while pods start, again while they start, and while they are deleted; in the end nothing is left.

    An agent's death costs no container its first attempt. A runtime's may: it takes with it a start that is half
    done, and the one way on is a second attempt, once the first is known to be over.
    """
    attempts_at_most = 1 if program == "agent" else 2
    before = await world.left(NODE)
    names = [f"count-{i}" for i in range(8)]
    try:
        for part, pause in ((names[:4], 0.3), (names[4:], 0.8)):
            await asyncio.gather(*(world.create(counting(name)) for name in part))
            await asyncio.sleep(pause)  # a moment in the middle of their start; which one does not matter
            await world.kill(NODE, program)
        for name in names:
            await world.ready(name, 180)
        pods = await world.pods()
        for one in pods:
            assert status_of(one)["restartCount"] < attempts_at_most
            attempts = [each for each in await world.attempts(NODE) if each.uid == one["metadata"]["uid"]]
            assert len([each for each in attempts if each.state is RunState.RUNNING]) == 1
            assert len(attempts) <= attempts_at_most
        await asyncio.gather(*(world.delete(name) for name in names))
        await asyncio.sleep(0.5)
        await world.kill(NODE, program)
        for name in names:
            await world.gone(name, seconds=180)
        counted = await world.in_node(NODE, "sh", "-c", f"cd {_STARTS} && grep -c . *")
        starts = dict(line.split(":") for line in counted.text.split())
        assert set(starts) == set(names)
        assert all(1 <= int(count) <= attempts_at_most for count in starts.values()), starts
    finally:
        await world.in_node(NODE, "rm", "-rf", _STARTS)

    await world.nothing_beyond(NODE, before)


async def test_an_agent_killed_over_and_over_leaves_pods_alone(world: World) -> None:
    """Killed three times as soon as it is back, before it can have finished starting."""
    made = await world.run(manifest("steady", nodeName=NODE))
    ids = containers_of([made])
    async with watched(world) as flips:
        for _ in range(3):
            await world.kill(NODE, "agent")
        await world.agent_well(NODE)
        await world.run(manifest("next", nodeName=NODE))
    assert flips.seen == []
    assert containers_of([await world.get("steady")]) == ids


async def test_an_agent_that_gets_sigterm_ends_in_order(world: World) -> None:
    """SIGTERM while a pod starts: soon, with nothing left behind in the process, and the pod does not notice."""
    made = await world.run(manifest("steady", nodeName=NODE))
    before = len(world.agent_log(NODE))
    await world.create(manifest("next", nodeName=NODE))
    old, began = await world.pid_once_running(NODE, "agent"), time.monotonic()
    os.kill(old, signal.SIGTERM)
    await world.pid_once_running(NODE, "agent", other_than=old)
    world.stats.append(("agent stopped by SIGTERM -> started again", f"{time.monotonic() - began:.2f} s"))
    assert status_of(await world.ready("next"))["restartCount"] == 0
    said = world.agent_log(NODE)[before:]
    last = said[: said.index("stopping; pods run on")]
    termination = said[len(last) :].partition("\n")[2].splitlines()
    assert not [
        line for line in termination if "without an owner" in line or "Traceback" in line or "destroyed" in line
    ], termination
    assert containers_of([await world.get("steady")]) == containers_of([made])


async def test_a_stopped_containerd_is_reported_and_comes_back(world: World) -> None:
    """Frozen, not ended: the node reports what does not answer; pods keep running; afterwards it is Ready again."""
    before = await resident(world)
    pid = await world.pid_once_running(NODE, "containerd")
    os.kill(pid, signal.SIGSTOP)
    try:

        async def reported() -> bool:
            node = await world.api.get(f"/api/v1/nodes/{NODE}")
            ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
            return ready["status"] == "False" and "runtime" in ready["message"].lower()

        began = time.monotonic()
        await holds(reported, "the node is not Ready and says that its runtime does not answer", 180)
        world.stats.append(("containerd frozen -> node NotReady", f"{time.monotonic() - began:.1f} s"))
        await world.create(manifest("waits", nodeName=NODE, tolerations=[{"operator": "Exists"}]))
        address = (await world.get("demo", "services", "default"))["spec"]["clusterIP"]
        net = world.cluster.namespace(NODE, "net")
        with load([f"http://{address}/hostname"], net=net) as asked:
            await asyncio.sleep(1)
            assert asked.stop()["asked"]
    finally:
        os.kill(pid, signal.SIGCONT)
    await world.ready("waits")

    async def well() -> bool:
        return is_ready(await world.api.get(f"/api/v1/nodes/{NODE}"))

    await holds(well, "the node is Ready again")
    assert containers_of(await resident(world)) == containers_of(before)
