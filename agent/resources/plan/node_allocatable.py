"""Limits of the system cgroups beside the pods' (pkg/kubelet/cm/node_container_manager_linux.go)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.common.plan.demand import CPU, amounts
from agent.resources.model import Limits
from agent.resources.plan import cgroups
from agent.resources.plan.memory_qos import MemoryQos, of_reservation


@dataclass(frozen=True, slots=True)
class Reservation:
    """A configured reservation: `key` of enforceNodeAllocatable, resources as quantities, the cgroup's path."""

    key: str
    resources: Mapping[str, str]
    cgroup: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """An existing cgroup and its limits, as writes and (with the systemd driver) as properties of its slice."""

    key: str
    path: str
    writes: tuple[cgroups.Write, ...]
    properties: tuple[str, ...]


def reserved(
    enforce: Collection[str], reservations: Collection[Reservation], version: int, memory: MemoryQos
) -> tuple[Reserved, ...]:
    """The reservations that enforceNodeAllocatable names; with "-compressible" only their CPU."""
    found = []
    for one in reservations:
        compressible = f"{one.key}-compressible" in enforce
        if not compressible and one.key not in enforce:
            continue
        listed = amounts(one.resources)
        if compressible:
            listed = {name: amount for name, amount in listed.items() if name == CPU}
        limits = cgroups.limits_of_node(listed) if listed else Limits()
        if CPU not in listed:
            limits = Limits(memory=limits.memory, pids=limits.pids, hugepages=limits.hugepages)
        limits = of_reservation(limits, memory)
        writes = cgroups.writes(limits, version, limits.hugepages)
        properties = cgroups.slice_properties(limits, version)
        path = "/" + one.cgroup.strip("/")
        found.append(Reserved(one.key, path, tuple(writes), tuple(properties)))
    return tuple(found)
