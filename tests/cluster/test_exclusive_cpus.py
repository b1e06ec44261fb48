"""The static CPU and memory managers on a real node: which container gets which CPU, also after a killed agent."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from agent.managers.edge.cpu_topology import read_topology
from agent.managers.model.cpus import format_cpus, parse_cpus
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import cli
from tests.cluster.plugin_processes import pod_resources
from tests.cluster.world import Object, World, configured, containers_of, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU cannot be shared out"),
]

FILES = ("kubelet/cpu_manager_state", "kubelet/memory_manager_state")
# Half a CPU is reserved, so CPU 0 stays shared and the cluster's other pods fit on it.
SETTINGS: Object = {
    "cpuManagerPolicy": "static",
    "systemReserved": {"cpu": "500m", "memory": "100Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "200Mi"}}],
    "topologyManagerPolicy": "best-effort",
}


async def test_whole_cpus_through_a_restart(world: World) -> None:
    node = world.cluster.nodes[0].name
    every = read_topology().all
    files = [Path(world.cluster.node_dir(node), name) for name in FILES]
    remove(files)
    async with configured(world, node, **SETTINGS):
        try:
            await _shared_and_alone(world, node, every)
            before = containers_of(await world.pods())
            await world.kill(node, "agent")
            await world.agent_well(node)
            await _still_alone(world, node, every)
            assert containers_of([await world.get("first"), await world.get("loose")]) == before
            await world.delete("first")
            await world.gone("first")
            await holds(runs(world, "loose", every), "the CPUs are shared again")
        finally:
            # An agent of another policy refuses them, as upstream's kubelet does.
            remove(files)


async def _shared_and_alone(world: World, node: str, every: frozenset[int]) -> None:
    await world.run(manifest("loose", sleeper(resources={"requests": {"cpu": "10m"}}), nodeName=node))
    assert await where(world, "loose") == every
    await world.run(whole("first", node, len(every) - 1))
    assert await where(world, "first") == every - {0}
    await holds(runs(world, "loose", frozenset({0})), "the other pod has left")
    answer = await pod_resources(world, node, "Get", pod_name="first", pod_namespace=world.namespace)
    (box,) = answer["pod_resources"]["containers"]
    assert box["cpu_ids"] == sorted(every - {0})
    assert [(one["memory_type"], one["size"]) for one in box["memory"]] == [("memory", 32 << 20)]
    assert (await pod_resources(world, node, "GetAllocatableResources"))["cpu_ids"] == sorted(every - {0})


async def _still_alone(world: World, node: str, every: frozenset[int]) -> None:
    second = await world.ended(whole("second", node, 1))
    assert second["status"]["reason"] == "UnexpectedAdmissionError"
    assert "not enough cpus available to satisfy request: requested=1, available=0" in second["status"]["message"]
    asked = ("why", f"{world.namespace}/second", "--name", world.cluster.name, "-o", "json")
    explained = cli(*asked, check=False).stdout
    assert "1 exclusive CPUs asked for, 0 free" in explained
    assert await where(world, "first") == every - {0}
    assert await where(world, "loose") == {0}


def remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def whole(name: str, node: str, cpus: int) -> Object:
    amounts = {"cpu": str(cpus), "memory": "32Mi"}
    return manifest(name, sleeper(resources={"requests": amounts, "limits": amounts}), nodeName=node)


def runs(world: World, name: str, cpus: frozenset[int]) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return await where(world, name) == cpus

    return there


async def where(world: World, name: str) -> frozenset[int]:
    """The CPUs on which the pod's first process may run."""
    text = (await world.shell(name, "grep Cpus_allowed_list /proc/1/status")).split()[-1]
    found = parse_cpus(text)
    assert format_cpus(found) == text
    return found
