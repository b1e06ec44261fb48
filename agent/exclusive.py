"""The CPU, memory and topology managers, made from what is configured and from what this machine is."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from agent import derive
from agent.edge.checkpoint import CheckpointFiles
from agent.edge.cpu_topology import read_topology
from agent.edge.exclusive_figures import ExclusiveMetrics
from agent.ground import Ground
from agent.model.cpus import CpuTopology, format_cpus
from agent.model.pods import ContainerState, RunState
from agent.plan import node as node_plan
from agent.plan.exclusive import cpus
from agent.plan.exclusive.admission import Policies
from agent.plan.exclusive.memory_policy import memory_policy
from agent.plan.exclusive.topology import topology_policy
from agent.settings import Settings
from agent.work.devices import DeviceDesk
from agent.work.exclusive import ExclusiveDesk, ExclusiveHooks
from agent.work.pod_table import PodTable
from nodelib.errors import Invalid


async def build_exclusive(ground: Ground) -> ExclusiveDesk:
    """With what earlier agents gave. Raises Invalid: a policy that cannot be had here; Permanent: a foreign state."""
    settings = ground.settings
    root = settings.paths.root_dir
    period = settings.managers.reconcile_period
    desk = ExclusiveDesk(_policies(ground), CheckpointFiles(root), root, ground.made.cri, ground.clock, period)
    await desk.load()
    ground.metrics.registry.register(ExclusiveMetrics(desk.figures))
    return desk


def connect(desk: ExclusiveDesk, table: PodTable, devices: DeviceDesk) -> None:
    """Late: devices are given near to what the desk gave, and the desk asks where devices are."""
    desk.hooks = ExclusiveHooks(partial(running, table), devices.topology_hints)


def running(table: PodTable) -> Iterator[ContainerState]:
    """All containers that run on the node."""
    for memory in table.memories():
        yield from (one for one in memory.seen.containers if one.state is RunState.RUNNING)


def _policies(ground: Ground) -> Policies:
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
            memory_policy(topology.nodes, managers.reserved_memory, _kept_memory(ground))
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


def _kept_memory(ground: Ground) -> dict[str, Decimal]:
    """Memory and huge pages that the node keeps back in all, eviction thresholds included."""
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
