"""Joins the parts that make this machine a node: its Node object and Lease, its cgroups, its reserved resources."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agent.build import derive
from agent.build.base import Base
from agent.build.plugins import BuiltPlugins
from agent.common.model.pods import Pod
from agent.common.plan.demand import MEMORY, ZERO
from agent.containers.work.configs import CgroupFacts
from agent.node.edge.iptables import find_tables
from agent.node.plan.shutdown import NOT_READY
from agent.node.work.deps import NodeEdges, NodeHooks, NodeTimes
from agent.node.work.lease import LeaseController
from agent.node.work.local_node import LocalNode
from agent.node.work.node import NodeManager
from agent.node.work.util_chains import UtilChains
from agent.resources.edge.cgroups import CgroupTree
from agent.resources.edge.kernel import hugepage_sizes, swap_limits
from agent.resources.edge.systemd import SystemdSlices
from agent.resources.plan.container_limits import Machine
from agent.resources.plan.swap import LIMITED, Swap
from agent.resources.work.cgroups import KubepodsTree
from agent.resources.work.node_allocatable import NodeAllocatable, NodeAllocatableDeps
from agent.resources.work.system_cgroups import SystemCgroupPaths, SystemCgroups
from nodelib.quantity import whole
from nodelib.tasks import Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltCgroups:
    """The cgroups of pods, the facts that decide their limits, and what the node reserves for itself."""

    kubepods: KubepodsTree
    facts: CgroupFacts
    allocatable: NodeAllocatable
    system: SystemCgroups


def node_keeper(base: Base, plugins: BuiltPlugins, *, watch_nodes: bool) -> NodeManager:
    """The keeper of the Node object. Without an API server the Node exists in this process only.

    `watch_nodes`: all Nodes are watched and set in `base.nodes`; otherwise only this one is.
    """
    settings, connections = base.settings, base.connections
    make = partial(LocalNode, pod_cidr=settings.node.pod_cidr) if settings.standalone else NodeManager
    keeper = make(
        NodeEdges(
            connections.unlimited,
            connections.cri,
            connections.cri,
            base.machine,
            base.events,
            base.clock,
            base.addresses.refresh,
        ),
        NodeHooks(
            on_nodes=base.nodes.set if watch_nodes else None,
            extras=plugins.node_extras,
            own_node=base.own_node,
            conditions=base.certificates.conditions,
            pressures=lambda: base.pressures.now,
            problems=lambda: [NOT_READY] if base.shutting_down.now else [],
        ),
        settings.node_policy,
        port=settings.server.port,
        register=settings.node.register,
        times=NodeTimes(
            settings.status.update_frequency,
            settings.status.report_frequency,
        ),
    )
    for changed in (base.pressures, base.shutting_down, base.node_changed):
        changed.follow(keeper.poke)
    return keeper


def lease(base: Base) -> LeaseController:
    """The heartbeat, over a connection of its own."""
    return LeaseController(
        base.connections.heartbeat,
        base.settings.node.name,
        base.own_node,
        duration=base.settings.status.lease_duration,
        clock=base.clock,
    )


def firewall_tasks(base: Base) -> dict[str, Work]:
    """Name -> long-lived work: the kubelet's own chains in iptables, unless makeIPTablesUtilChains is false."""
    return {"util-chains": UtilChains(find_tables, base.clock).run} if base.settings.node.util_chains else {}


async def build_cgroups(base: Base, keeper: NodeManager, unthrottled: Callable[[Pod], bool]) -> BuiltCgroups:
    """Create the cgroups of all pods, and reserve resources as enforceNodeAllocatable says. Raises NodewrightError."""
    tree, policy, sizes = CgroupTree.detect(), base.settings.cgroups.pods, hugepage_sizes()
    slices = SystemdSlices() if policy.driver == "systemd" else None
    base.metrics.cgroup_version.set(tree.version)
    cgroups = KubepodsTree(
        tree,
        policy,
        hugepage_sizes=sizes,
        slices=slices,
        unthrottled=unthrottled,
        timed=base.metrics.cgroup_operation,
    )
    await cgroups.setup(keeper.enforced)
    allocatable = _node_allocatable(base, tree, cgroups, keeper)
    await allocatable.reserve()
    wanted = base.settings.cgroups
    system = SystemCgroups(SystemCgroupPaths(wanted.kubelet_cgroup, wanted.system_cgroup), tree, base.clock)
    await system.setup()
    return BuiltCgroups(
        cgroups,
        _cgroup_facts(base, tree, sizes, unthrottled, whole(keeper.enforced.get(MEMORY, ZERO))),
        allocatable,
        system,
    )


def _node_allocatable(base: Base, tree: CgroupTree, cgroups: KubepodsTree, keeper: NodeManager) -> NodeAllocatable:
    slices = SystemdSlices() if base.settings.cgroups.pods.driver == "systemd" else None
    parts = NodeAllocatableDeps(tree, slices, cgroups.enforce, base.events, base.clock, lambda: keeper.ref)
    return NodeAllocatable(derive.reserved_cgroups(base.settings, tree.version), parts)


def _cgroup_facts(
    base: Base, tree: CgroupTree, sizes: tuple[int, ...], unthrottled: Callable[[Pod], bool], allocatable: int
) -> CgroupFacts:
    facts, wanted = base.machine.facts(), base.settings.cgroups
    if wanted.swap_behavior == LIMITED and tree.version == 1:
        log.warning("memorySwap.swapBehavior: LimitedSwap needs cgroup v2: containers get no swap here")
    machine = Machine(
        memory=facts.memory,
        cgroup_version=tree.version,
        allocatable=allocatable,
        hugepage_sizes=sizes,
        swap=Swap(swap_limits(tree), wanted.swap_behavior, facts.swap, facts.memory),
        single_process_oom_kill=wanted.single_process_oom_kill,
    )
    return CgroupFacts(base.settings.cgroups.pods, machine, unthrottled)
