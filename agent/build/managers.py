"""Build the CPU, memory and topology managers from the settings and the topology of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from agent.build import derive
from agent.build.base import Base
from agent.common.edge.checkpoint import CheckpointFiles
from agent.common.model.pods import ContainerState, RunState
from agent.devices.work.devices import DeviceManager
from agent.managers.edge.cpu_topology import read_topology
from agent.managers.edge.metrics import ManagerMetrics
from agent.managers.model.cpus import CpuTopology, format_cpus
from agent.managers.plan import cpus
from agent.managers.plan.admission import Policies
from agent.managers.plan.memory_policy import memory_policy
from agent.managers.plan.topology import topology_policy
from agent.managers.work import ResourceManagerHooks, ResourceManagers
from agent.node.plan import node as node_plan
from agent.pods.work.pod_table import PodTable
from agent.settings import Settings
from nodelib.errors import Invalid


async def build_managers(ground: Base) -> ResourceManagers:
    """With the state of an earlier agent. Raises Invalid: unsupported policy on this machine; Permanent: bad state."""
    settings = ground.settings
    root = settings.paths.root_dir
    period = settings.managers.reconcile_period
    managers = ResourceManagers(_policies(ground), CheckpointFiles(root), root, ground.made.cri, ground.clock, period)
    await managers.load()
    ground.metrics.registry.register(ManagerMetrics(managers.figures))
    return managers


def connect(managers: ResourceManagers, table: PodTable, devices: DeviceManager) -> None:
    """Called late, because the managers need the hints of the device manager and it needs their affinity."""
    managers.hooks = ResourceManagerHooks(partial(running, table), devices.topology_hints)


def running(table: PodTable) -> Iterator[ContainerState]:
    """All running containers of the node."""
    for memory in table.memories():
        yield from (one for one in memory.seen.containers if one.state is RunState.RUNNING)


def _policies(ground: Base) -> Policies:
    managers = ground.settings.managers
    if not (managers.static_cpus or managers.static_memory or managers.reserved_cpus) and managers.topology == "none":
        return Policies()
    topology = read_topology(memory=ground.machine.facts().memory)
    _check_reserved(ground.settings, topology)
    try:
        return Policies(
            cpus.static_policy(topology, managers.reserve, managers.reserved_cpus, managers.cpu_options)
            if managers.static_cpus
            else None,
            topology_policy(managers.topology, managers.scope, topology.nodes, managers.topology_options),
            memory_policy(topology.nodes, managers.reserved_memory, _reserved_memory(ground))
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


def _reserved_memory(ground: Base) -> dict[str, Decimal]:
    """Memory and huge pages that are reserved in all, eviction thresholds included."""
    policy = derive.node_policy(ground.settings)
    return node_plan.kept_back(node_plan.capacity(ground.machine.facts(), policy), policy)


def _check_reserved(settings: Settings, topology: CpuTopology) -> None:
    wanted = settings.managers.reserved_cpus
    if not wanted <= topology.all:
        raise Invalid(
            f"reserved-cpus: {format_cpus(wanted)} is not a subset of online-cpus: {format_cpus(topology.all)}",
            obj="reservedSystemCPUs",
            step="start the resource managers",
            action="Name CPUs that this machine has.",
        )
