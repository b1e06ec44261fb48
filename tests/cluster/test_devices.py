"""Upstream's sample device plugin on a real node, and the podresources API that lists its devices."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.binaries.work import ensure
from controlplane.cluster.edge.roots import cache_root
from tests.builders.pods import manifest, sleeper
from tests.cluster.plugin_processes import Plugin, pod_resources, start
from tests.cluster.world import Object, World, containers_of, holds, status_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

RESOURCE = "example.com/resource"


@pytest.fixture
async def plugin(world: World) -> AsyncIterator[Plugin]:
    """It offers Dev-1 and Dev-2, each of which is a file below /tmp."""
    built = await asyncio.to_thread(ensure, ["sample-device-plugin"], cache_dir=Path(cache_root()))
    started = await start(world, node_of(world), Path("/"), str(built.path("sample-device-plugin")))
    yield started
    await started.stop()
    for name in ("Dev-1", "Dev-2"):
        await world.in_node(node_of(world), "rm", "-f", f"/tmp/{name}")


async def test_devices_of_pods_through_restarts(world: World, plugin: Plugin) -> None:
    node = node_of(world)
    await holds(lambda: offered(world, "2", "2"), "the node offers both devices")
    first = await world.run(asks("first", world))
    (shown,) = status_of(first)["allocatedResourcesStatus"]
    device = shown["resources"][0]["resourceID"]
    assert shown["name"] == RESOURCE and shown["resources"] == [{"resourceID": device, "health": "Healthy"}]
    assert (await world.shell("first", f"ls /tmp/{device}")).strip() == f"/tmp/{device}"
    assert await held(world, "first") == [device]
    assert await served(world, 2)

    before = containers_of([first])
    await world.kill(node, "agent")
    await world.agent_well(node)
    await holds(lambda: served(world, 2), "the plugin has come back to the new agent", 120)
    second = await world.run(asks("second", world))
    (other,) = await held(world, "second")
    assert {device, other} == {"Dev-1", "Dev-2"} and status_of(second)
    assert containers_of([await world.get("first")]) == before

    third = await world.ended(asks("third", world))
    assert third["status"]["reason"] == "UnexpectedAdmissionError"
    assert f"unavailable for {RESOURCE}. Requested: 1, Available: 0" in third["status"]["message"]

    await plugin.stop()
    await holds(lambda: offered(world, "2", "0"), "what its plugin has left is not promised any more")
    assert containers_of([await world.get("first")]) == before


def node_of(world: World) -> str:
    return world.cluster.nodes[0].name


def asks(name: str, world: World) -> Object:
    return manifest(name, sleeper(resources={"limits": {RESOURCE: "1"}}), nodeName=node_of(world))


async def offered(world: World, capacity: str, allocatable: str) -> bool:
    status = (await world.api.get(f"/api/v1/nodes/{node_of(world)}"))["status"]
    return (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)) == (capacity, allocatable)


async def served(world: World, count: int) -> bool:
    """The agent itself knows this many devices; the Node may show an older number."""
    return len((await pod_resources(world, node_of(world), "GetAllocatableResources"))["devices"]) == count


async def held(world: World, name: str) -> list[str]:
    """Devices of a pod, on which List and Get of the podresources API agree."""
    listed = (await pod_resources(world, node_of(world), "List"))["pod_resources"]
    (found,) = [one for one in listed if (one["namespace"], one["name"]) == (world.namespace, name)]
    alone = await pod_resources(world, node_of(world), "Get", pod_name=name, pod_namespace=world.namespace)
    assert alone["pod_resources"] == found
    return [device for entry in found["containers"][0]["devices"] for device in entry["device_ids"]]
