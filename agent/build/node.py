"""The parts that stand for this machine as a node: its Node object and Lease, its cgroups, what it keeps for itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from agent.build import derive
from agent.build.base import Base
from agent.build.core import NodesFollower
from agent.common.model.pods import Pod
from agent.node.model import NodePlace
from agent.node.plan.shutdown import NOT_READY
from agent.node.work.lease import LeaseKeeper
from agent.node.work.local_node import LocalNode
from agent.node.work.node import NodeEdges, NodeHooks, NodeKeeper, NodeTimes
from agent.resources.edge import CgroupTree, SystemdSlices, hugepage_sizes, swap_limits
from agent.resources.plan import cgroups as cgroup_plan
from agent.resources.plan.swap import LIMITED, Swap
from agent.resources.work.cgroups import KubepodsTree
from agent.resources.work.node_allocatable import NodeAllocatable, NodeAllocatableDeps
from agent.settings import Settings
from agent.volumes.work.world import CgroupFacts

log = logging.getLogger(__name__)


def node_keeper(ground: Base, followers: list[NodesFollower] | None) -> NodeKeeper:
    """The keeper of the Node object, or of nothing but this process where there is no API server."""
    settings, made = ground.settings, ground.made

    def told(nodes: list[NodePlace]) -> None:
        for follower in followers or ():
            follower(nodes)

    make = partial(LocalNode, pod_cidr=settings.node.pod_cidr) if settings.standalone else NodeKeeper
    return make(
        NodeEdges(made.api, made.cri, made.cri, ground.machine, ground.events, ground.clock, ground.addresses.look),
        NodeHooks(
            on_nodes=told if followers is not None else None,
            conditions=ground.credentials.conditions,
            pressures=lambda: ground.pressures.now,
            problems=lambda: [NOT_READY] if ground.going.now else [],
        ),
        derive.node_policy(settings),
        port=settings.server.port,
        register=settings.node.register,
        times=NodeTimes(
            settings.status.update_frequency,
            settings.status.report_frequency,
        ),
    )


def lease(ground: Base, keeper: NodeKeeper) -> LeaseKeeper:
    """The heartbeat, over a connection of its own."""
    return LeaseKeeper(
        ground.made.heartbeat,
        ground.settings.node.name,
        lambda: keeper.uid,
        duration=ground.settings.status.lease_duration,
        clock=ground.clock,
    )


async def kubepods(
    settings: Settings, tree: CgroupTree, keeper: NodeKeeper, unthrottled: Callable[[Pod], bool]
) -> tuple[KubepodsTree, tuple[int, ...]]:
    """The cgroups of all pods, made; and the sizes of huge pages here. Raises NodewrightError."""
    policy, sizes = derive.cgroup_policy(settings), hugepage_sizes()
    slices = SystemdSlices() if policy.driver == "systemd" else None
    cgroups = KubepodsTree(tree, policy, hugepage_sizes=sizes, slices=slices, unthrottled=unthrottled)
    await cgroups.setup(keeper.enforced)
    return cgroups, sizes


def node_allocatable(ground: Base, tree: CgroupTree, cgroups: KubepodsTree, keeper: NodeKeeper) -> NodeAllocatable:
    """What the machine keeps for itself, enforced as the configuration says."""
    slices = SystemdSlices() if ground.settings.cgroups.driver == "systemd" else None
    parts = NodeAllocatableDeps(tree, slices, cgroups.enforce, ground.events, ground.clock, lambda: keeper.ref)
    return NodeAllocatable(derive.reserved(ground.settings, tree.version), parts)


def cgroup_facts(
    ground: Base, tree: CgroupTree, sizes: tuple[int, ...], unthrottled: Callable[[Pod], bool]
) -> CgroupFacts:
    """What decides the limits of pods: the configuration, this machine, and who has CPUs for himself."""
    facts, wanted = ground.machine.facts(), ground.settings.cgroups
    if wanted.swap_behavior == LIMITED and tree.version == 1:
        log.warning("memorySwap.swapBehavior: LimitedSwap needs cgroup v2: containers get no swap here")
    machine = cgroup_plan.Machine(
        memory=facts.memory,
        cgroup_version=tree.version,
        hugepage_sizes=sizes,
        swap=Swap(swap_limits(tree), wanted.swap_behavior, facts.swap, facts.memory),
        single_process_oom_kill=wanted.single_process_oom_kill,
    )
    return CgroupFacts(derive.cgroup_policy(ground.settings), machine, unthrottled)
