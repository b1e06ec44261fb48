"""The answers of the podresources API v1 (pkg/kubelet/apis/podresources/server_v1.go).

CPUs and memory are listed where a static policy gave them to a container alone, as upstream lists them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from agent.common.model.pods import Kind, Pod
from agent.common.plan.demand import is_sidecar
from agent.devices.model.devices import Device, Holder, Holding, Json, Offer
from agent.devices.model.dra import ClaimState
from agent.devices.plan.dra import dynamic_resources
from agent.managers.model.cpus import Cpus
from agent.managers.model.memory_blocks import Block


def pod_resources(
    pod: Pod,
    held: Mapping[Holder, Holding],
    claims: Collection[ClaimState] = (),
    cpus: Mapping[tuple[str, str], Cpus] = MappingProxyType({}),
    memory: Mapping[tuple[str, str], tuple[Block, ...]] = MappingProxyType({}),
) -> Json:
    """PodResources: sidecars and main containers; init containers that end have nothing for long."""
    containers = [one for _, one in pod.containers(Kind.INIT) if is_sidecar(one)]
    containers += [one for _, one in pod.containers(Kind.MAIN)]
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [
            {
                "name": one["name"],
                "devices": _devices(pod, one["name"], held),
                "dynamic_resources": dynamic_resources(pod, one, claims),
                "cpu_ids": sorted(cpus.get((pod.uid, one["name"]), ())),
                "memory": [_memory(block) for block in memory.get((pod.uid, one["name"]), ())],
            }
            for one in containers
        ],
    }


def allocatable(offers: Mapping[str, Offer], cpus: Collection[int] = (), memory: Iterable[Block] = ()) -> Json:
    """AllocatableResourcesResponse: every healthy device, one entry each, and CPUs and memory that can be had alone."""
    found = [
        {"resource_name": name, "device_ids": [one], **_topology(offer.devices[one])}
        for name, offer in sorted(offers.items())
        for one in sorted(offer.healthy)
    ]
    return {"devices": found, "cpu_ids": sorted(cpus), "memory": [_memory(block) for block in memory]}


def _devices(pod: Pod, container: str, held: Mapping[Holder, Holding]) -> list[Json]:
    return [
        {"resource_name": holder.resource, "device_ids": list(ids), **_near([node])}
        for holder, has in sorted(held.items())
        if holder.uid == pod.uid and holder.container == container
        for node, ids in sorted(has.numa.items())
    ]


def _memory(block: Block) -> Json:
    return {"memory_type": block.kind, "size": block.size, **_near(block.nodes)}


def _topology(device: Device) -> Json:
    return _near(device.numa)


def _near(nodes: Iterable[int]) -> Json:
    known = [{"ID": node} for node in nodes if node >= 0]
    return {"topology": {"nodes": known}} if known else {}
