"""A node that runs short of a resource: which pod is evicted, what pod and node report, and that the pressure ends."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from controlplane.machine.edge.namespaces import in_node
from nodelib.quantity import value
from tests.builders.pods import container, manifest, sleeper
from tests.cluster.world import Object, World, condition, configured, holds
from tests.fakes.private_bus import DAEMON, private_bus

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_MIB = 1 << 20
_TIDY = "dd if=/dev/zero of=/cache/data bs=1M count={}; sleep 3600 & wait"
_DIES = "trap 'exit 143' TERM\n"  # of the signal: who ends in good order has succeeded, also when it is evicted
_FILL = _DIES + _TIDY


async def node_of(world: World, name: str) -> Object:
    return await world.api.get(f"/api/v1/nodes/{name}")


def filling(name: str, mebibytes: int, volume: Object, script: str = _FILL, **spec: Any) -> Object:
    """A pod that writes this many MiB into an emptyDir."""
    box = container(script=script.format(mebibytes), volumeMounts=[{"name": "cache", "mountPath": "/cache"}])
    return manifest(name, {**box, **spec.pop("box", {})}, volumes=[{"name": "cache", "emptyDir": volume}], **spec)


async def test_the_hungriest_pod_goes_when_memory_is_short(world: World) -> None:
    """The pods' own cgroup is made small (kubeReserved), so that the machine has all the memory it needs."""
    node = world.cluster.nodes[0].name
    shown = await node_of(world, node)
    reserved = value(shown["status"]["capacity"]["memory"]) - 500 * _MIB
    settings = {
        "kubeReserved": {"memory": str(reserved)},
        "evictionHard": {"memory.available": "200Mi"},
        "evictionPressureTransitionPeriod": "3s",
    }
    small = {"requests": {"memory": "64Mi", "cpu": "10m"}, "limits": {"memory": "64Mi", "cpu": "100m"}}

    async def pressure() -> str:
        return str(condition(await node_of(world, node), "MemoryPressure")["status"])

    async def pressed() -> bool:
        return await pressure() == "True"

    async def relieved() -> bool:
        taints = (await node_of(world, node))["spec"].get("taints") or []
        return await pressure() == "False" and not any("pressure" in one["key"] for one in taints)

    async with configured(world, node, **settings):
        modest = await world.run(manifest("modest", sleeper(resources=small), nodeName=node))
        await world.create(filling("hungry", 350, {"medium": "Memory"}, nodeName=node))
        await holds(pressed, "the node says MemoryPressure")
        await world.create(manifest("late", nodeName=node))
        ended = await world.until("hungry", lambda one: one["status"].get("phase") == "Failed", "evicted")
        assert ended["status"]["reason"] == "Evicted"
        assert "The node was low on resource: memory. Threshold quantity: 200Mi" in ended["status"]["message"]
        assert "Container main was using" in ended["status"]["message"]
        disrupted = condition(ended, "DisruptionTarget")
        assert (disrupted["status"], disrupted["reason"]) == ("True", "TerminationByKubelet")
        event = await world.event("hungry", "Evicted")
        assert event["metadata"]["annotations"]["starved_resource"] == "memory"
        refused = await world.until("late", lambda one: one["status"].get("phase") == "Failed", "refused")
        assert "The node had condition: [MemoryPressure]" in refused["status"]["message"]
        await holds(relieved, "the pressure ends and its taint goes")
        assert (await world.get("modest"))["status"]["phase"] == "Running"
        assert (await world.get("modest"))["metadata"]["uid"] == modest["metadata"]["uid"]


async def test_who_writes_beyond_a_limit_is_evicted(world: World) -> None:
    """Limits of ephemeral storage: of an emptyDir, of a container's own layer and logs."""
    storage: Object = {"resources": {"limits": {"ephemeral-storage": "20Mi"}}}
    other = sleeper("other", resources={"limits": {"ephemeral-storage": "900Mi"}})
    layer = container(script=_DIES + "dd if=/dev/zero of=/data bs=1M count=30; sleep 3600 & wait", **storage)
    await world.create(filling("volume", 30, {"sizeLimit": "20Mi"}))
    await world.create(filling("whole", 30, {}, box=storage))
    await world.create(manifest("layer", layer, other))
    await world.create(filling("within", 10, {"sizeLimit": "20Mi"}))
    await world.create(filling("tidy", 30, {"sizeLimit": "20Mi"}, _TIDY))
    expect = {
        "volume": 'Usage of EmptyDir volume "cache" exceeds the limit "20Mi". ',
        "whole": "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
        "layer": 'Container main exceeded its local ephemeral storage limit "20Mi". ',
    }

    async def evicted(name: str, message: str) -> None:
        ended = await world.until(name, lambda one: one["status"].get("phase") == "Failed", "evicted")
        assert (ended["status"]["reason"], ended["status"]["message"]) == ("Evicted", message)

    await asyncio.gather(*(evicted(name, message) for name, message in expect.items()))
    well = await world.until("tidy", lambda one: one["status"].get("phase") in ("Succeeded", "Failed"), "evicted")
    assert (well["status"]["phase"], well["status"].get("reason")) == ("Succeeded", None)
    await world.event("tidy", "Evicted")
    assert (await world.get("within"))["status"]["phase"] == "Running"


@pytest.mark.skipif(DAEMON is None, reason="dbus-daemon is not installed")
async def test_a_machine_that_goes_waits_for_its_pods(world: World) -> None:
    """systemd does not run here: a small logind with the real interface, on a bus inside the node's namespaces."""
    node = world.cluster.nodes[-1].name
    inside = in_node(world.cluster.namespaces(node), [])
    await world.in_node(node, "mkdir", "-p", "/run/dbus")

    async def ready() -> str:
        return str(condition(await node_of(world, node), "Ready")["status"])

    async def away() -> bool:
        return await ready() == "False"

    async def back() -> bool:
        return await ready() == "True"

    # The agent is not to find that it must write to the node's /etc.
    with private_bus(world.folder(node), "/run/dbus/system_bus_socket", inside, delay=60) as bus:

        async def locked() -> bool:
            return await asyncio.to_thread(bus.locks, inside) == 1

        async with configured(world, node, shutdownGracePeriod="6s", shutdownGracePeriodCriticalPods="2s"):
            await holds(locked, "the agent holds an inhibitor lock")
            slow = container(command=["sh", "-c", "trap '' TERM; sleep 3600 & wait; wait"])
            await world.run(manifest("ordinary", slow, nodeName=node, terminationGracePeriodSeconds=30))
            began = time.time()
            await asyncio.to_thread(bus.power_off, inside)
            ended = await world.until("ordinary", lambda one: one["status"].get("phase") == "Failed", "terminated")
            assert ended["status"]["reason"] == "Terminated"
            assert ended["status"]["message"] == "Pod was terminated in response to imminent node shutdown."
            assert condition(ended, "DisruptionTarget")["reason"] == "TerminationByKubelet"
            await holds(away, "the node says that it goes")
            assert "node is shutting down" in condition(await node_of(world, node), "Ready")["message"]
            await world.create(manifest("late", nodeName=node))
            refused = await world.until("late", lambda one: one["status"].get("phase") == "Failed", "refused")
            assert refused["status"]["reason"] == "NodeShutdown"

            async def off() -> float:
                return await asyncio.to_thread(bus.powered_off, inside)

            await holds(off, "the machine goes")
            assert 3.0 < await off() - began < 7.0
            await asyncio.to_thread(bus.cancel, inside)
            await holds(back, "a shutdown that is called off makes the node Ready again")
            await holds(locked, "the agent holds a lock again")

    async def replaced() -> bool:
        listed = (await world.api.get("/apis/apps/v1/deployments"))["items"]
        return all(one["status"].get("availableReplicas") == one["spec"]["replicas"] for one in listed)

    await holds(replaced, "the pods of the cluster's own deployments are replaced")
