"""The answers of the podresources API v1 (pkg/kubelet/apis/podresources/server_v1.go).

As upstream, CPUs and memory are listed only where a static policy assigned them to a container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar
from agent.devices.model.devices import AllocationKey, Device, DeviceAllocation, RegisteredPlugin
from agent.devices.model.dra import ClaimState
from agent.devices.plan.dra import claims_of, dynamic_resources
from agent.managers.model.cpus import Cpus
from agent.managers.model.memory_blocks import Block
from nodelib.json_values import Json


def pod_resources(
    pod: Pod,
    allocations: Mapping[AllocationKey, DeviceAllocation],
    claims: Iterable[ClaimState] = (),
    cpus: Mapping[tuple[str, str], Cpus] = MappingProxyType({}),
    memory: Mapping[tuple[str, str], tuple[Block, ...]] = MappingProxyType({}),
) -> Json:
    """PodResources of a pod: its sidecars and main containers, but no init containers that end."""
    containers = [one for kind, one in pod.containers(Kind.INIT) if is_sidecar(kind, one)]
    containers += [one for _, one in pod.containers(Kind.MAIN)]
    claimed, devices = claims_of(pod, claims), _devices(pod, allocations)
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [
            {
                "name": one["name"],
                "devices": devices.get(one["name"], []),
                "dynamic_resources": dynamic_resources(pod, one, claimed),
                "cpu_ids": sorted(cpus.get((pod.uid, one["name"]), ())),
                "memory": [_memory(block) for block in memory.get((pod.uid, one["name"]), ())],
            }
            for one in containers
        ],
    }


def allocatable(
    plugins: Mapping[str, RegisteredPlugin], cpus: Collection[int] = (), memory: Iterable[Block] = ()
) -> Json:
    """AllocatableResourcesResponse: one entry for each healthy device, and the CPUs and memory of static policies."""
    found = [
        {"resource_name": name, "device_ids": [one], **_topology(plugin.devices[one])}
        for name, plugin in sorted(plugins.items())
        for one in sorted(plugin.healthy)
    ]
    return {"devices": found, "cpu_ids": sorted(cpus), "memory": [_memory(block) for block in memory]}


def _devices(pod: Pod, allocations: Mapping[AllocationKey, DeviceAllocation]) -> dict[str, list[Json]]:
    """Of each container that has any: a pod may have thousands, and a node hundreds of devices."""
    found: dict[str, list[Json]] = {}
    for key, allocation in sorted((key, one) for key, one in allocations.items() if key.uid == pod.uid):
        for node, ids in sorted(allocation.numa.items()):
            entry = {"resource_name": key.resource, "device_ids": list(ids), **_numa_topology([node])}
            found.setdefault(key.container, []).append(entry)
    return found


def _memory(block: Block) -> Json:
    return {"memory_type": block.kind, "size": block.size, **_numa_topology(block.nodes)}


def _topology(device: Device) -> Json:
    return _numa_topology(device.numa)


def _numa_topology(nodes: Iterable[int]) -> Json:
    known = [{"ID": node} for node in nodes if node >= 0]
    return {"topology": {"nodes": known}} if known else {}
