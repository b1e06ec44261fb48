"""The answers of the podresources API v1 (pkg/kubelet/apis/podresources/server_v1.go).

CPUs and memory are listed by static policies alone, which this agent does not have: their lists are empty, as with
upstream's policy "none".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agent.model.devices import Device, Holder, Holding, Json, Offer
from agent.model.dra import ClaimState
from agent.model.pods import Kind, Pod
from agent.plan.demand import is_sidecar
from agent.plan.dra import dynamic_resources


def pod_resources(pod: Pod, held: Mapping[Holder, Holding], claims: Collection[ClaimState] = ()) -> Json:
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
            }
            for one in containers
        ],
    }


def allocatable(offers: Mapping[str, Offer]) -> Json:
    """AllocatableResourcesResponse: every healthy device, one entry each."""
    found = [
        {"resource_name": name, "device_ids": [one], **_topology(offer.devices[one])}
        for name, offer in sorted(offers.items())
        for one in sorted(offer.healthy)
    ]
    return {"devices": found}


def _devices(pod: Pod, container: str, held: Mapping[Holder, Holding]) -> list[Json]:
    return [
        {"resource_name": holder.resource, "device_ids": list(ids), **_near([node])}
        for holder, has in sorted(held.items())
        if holder.uid == pod.uid and holder.container == container
        for node, ids in sorted(has.numa.items())
    ]


def _topology(device: Device) -> Json:
    return _near(device.numa)


def _near(nodes: Iterable[int]) -> Json:
    known = [{"ID": node} for node in nodes if node >= 0]
    return {"topology": {"nodes": known}} if known else {}
