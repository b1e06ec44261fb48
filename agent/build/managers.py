"""Joins the CPU, memory and topology managers with the settings and the topology of this machine."""

from __future__ import annotations

from decimal import Decimal

from agent.build.base import Base
from agent.common.edge.checkpoint import CheckpointFiles
from agent.devices.work.devices import DeviceManager
from agent.managers.edge.cpu_topology import read_topology
from agent.managers.edge.metrics import ManagerMetrics
from agent.managers.model.cpus import CpuTopology, format_cpus
from agent.managers.plan import cpus
from agent.managers.plan.admission import Policies
from agent.managers.plan.memory_policy import memory_policy
from agent.managers.plan.topology import topology_policy
from agent.managers.work import ResourceManagerHooks, ResourceManagers, TopologyAffinity
from agent.node.plan import capacity as node_plan
from agent.settings import Settings
from nodelib.errors import Invalid


async def build_managers(base: Base, devices: DeviceManager, affinity: TopologyAffinity) -> ResourceManagers:
    """The managers, with the assignments of earlier agents.

    Raises Invalid for a policy that is impossible on this machine, Permanent for a checkpoint of another policy.
    """
    root = base.settings.paths.root_dir
    managers = ResourceManagers(
        _policies(base),
        CheckpointFiles(root),
        root,
        base.connections.cri,
        base.clock,
        base.settings.managers.reconcile_period,
        ResourceManagerHooks(base.pods.running, devices.topology_hints, affinity),
    )
    await managers.load()
    base.metrics.registry.register(ManagerMetrics(managers.counts))
    return managers


def _policies(base: Base) -> Policies:
    managers = base.settings.managers
    if not (managers.static_cpus or managers.static_memory or managers.reserved_cpus) and managers.topology == "none":
        return Policies()
    topology = read_topology(memory=base.machine.facts().memory)
    _check_reserved(base.settings, topology)
    try:
        return Policies(
            cpus.static_policy(topology, managers.reserve, managers.reserved_cpus, managers.cpu_options)
            if managers.static_cpus
            else None,
            topology_policy(managers.topology, managers.scope, topology.nodes, managers.topology_options),
            memory_policy(topology.nodes, managers.reserved_memory, _reserved_memory(base))
            if managers.static_memory
            else None,
        )
    except Invalid as error:
        raise Invalid(
            error.message,
            obj="cpuManagerPolicy, memoryManagerPolicy, topologyManagerPolicy",
            step="start the resource managers",
            action=error.action or "Change these settings, or set the policies to none on this machine.",
        ) from error


def _reserved_memory(base: Base) -> dict[str, Decimal]:
    """All memory and huge pages that the node keeps from pods, eviction thresholds included."""
    policy = base.settings.node_policy
    return node_plan.reservation(node_plan.capacity(base.machine.facts(), policy), policy)


def _check_reserved(settings: Settings, topology: CpuTopology) -> None:
    wanted = settings.managers.reserved_cpus
    if not wanted <= topology.all:
        raise Invalid(
            f"reserved-cpus: {format_cpus(wanted)} is not a subset of online-cpus: {format_cpus(topology.all)}",
            obj="reservedSystemCPUs",
            step="start the resource managers",
            action="Name CPUs that this machine has.",
        )
