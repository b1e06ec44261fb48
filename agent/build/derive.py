"""Derives the values that no single setting holds: from several settings, or from settings and the state of the node.

Most parts take their settings unchanged (agent/settings.py).
"""

from __future__ import annotations

from decimal import Decimal

from agent.admission.plan.admit import NodeView
from agent.common.model.pod_settings import NodeContext
from agent.eviction.model import EvictionPolicy
from agent.eviction.plan.thresholds import thresholds
from agent.node.work.node import NodeManager
from agent.resources.plan import node_allocatable
from agent.resources.plan.cgroups import path_of, root_name
from agent.resources.plan.node_allocatable import Reservation, Reserved
from agent.server.work import ServedNode
from agent.settings import Settings
from agent.stats.model import StatsSettings
from nodelib.json_values import Json
from nodelib.quantity import format_bytes, format_milli


def eviction_policy(settings: Settings) -> EvictionPolicy:
    """The thresholds of all signals; also those of the pods' own cgroup, if it has a limit."""
    eviction = settings.eviction
    found = thresholds(
        eviction.hard,
        eviction.soft,
        eviction.soft_grace,
        eviction.minimum_reclaim,
        enforce_pods=settings.node_policy.enforce_pods,
    )
    return EvictionPolicy(found, eviction.pressure_transition_period, eviction.max_grace, eviction.local_storage)


def reserved_cgroups(settings: Settings, cgroup_version: int) -> tuple[Reserved, ...]:
    """The limits of the cgroups that enforceNodeAllocatable names besides the pods' own."""
    cgroups = settings.cgroups
    reservations = (
        Reservation("system-reserved", cgroups.system_reserved, cgroups.system_reserved_cgroup),
        Reservation("kube-reserved", cgroups.kube_reserved, cgroups.kube_reserved_cgroup),
    )
    return node_allocatable.reserved(cgroups.enforce, reservations, cgroup_version, cgroups.pods.memory)


def stats_settings(settings: Settings, huge_pages: int = 0) -> StatsSettings:
    """The cgroups and folders that statistics are read from. `huge_pages`: bytes that the machine has set aside."""
    policy = settings.cgroups.pods
    return StatsSettings(
        node_name=settings.node.name,
        kubepods=path_of(root_name(policy), policy.driver),
        root_dir=settings.paths.root_dir,
        pod_logs_dir=settings.paths.pod_logs_dir,
        node_cgroup=policy.root,
        runtime_cgroup=settings.cgroups.runtime_cgroup,
        system_cgroup=settings.cgroups.system_cgroup,
        huge_pages=huge_pages if settings.eviction.huge_pages else 0,
    )


def served_node(settings: Settings, addresses: tuple[str, ...]) -> ServedNode:
    """The node as the kubelet's server presents it."""
    return ServedNode(
        name=settings.node.name,
        cert_dir=settings.paths.cert_dir,
        names=(settings.node.name,),
        addresses=addresses,
        configz=settings.effective,
        flags=settings.flags,
        checkpoint_dir=f"{settings.paths.root_dir}/checkpoints",
        serving_pair=f"{settings.paths.cert_dir}/kubelet-server-current.pem" if settings.server.tls_bootstrap else "",
    )


def node_context(settings: Settings, keeper: NodeManager, addresses: tuple[str, ...]) -> NodeContext:
    """The node as container configurations depend on it."""
    handlers = keeper.runtime.handlers
    return NodeContext(
        host_ips=addresses,
        allocatable=resource_list(keeper.allocatable),
        recursive_read_only_handlers=frozenset(one.name for one in handlers if one.recursive_read_only_mounts),
        user_namespace_handlers=frozenset(one.name for one in handlers if one.user_namespaces),
        uid=keeper.uid,
        selinux=keeper.selinux,
        volumes=settings.volume_gates,
    )


def node_view(
    settings: Settings, keeper: NodeManager, pressures: tuple[str, ...] = (), *, shutting_down: bool = False
) -> NodeView:
    """The node as admission sees it."""
    spec: Json = (keeper.node or {}).get("spec") or {}
    return NodeView(
        name=settings.node.name,
        labels=keeper.labels,
        taints=tuple(spec.get("taints") or ()),
        allocatable=resource_list(keeper.allocatable),
        supplemental_groups_policy=keeper.runtime.supplemental_groups_policy is not False,
        kernel=keeper.kernel,
        unsafe_sysctls=settings.admission.unsafe_sysctls,
        pressures=pressures,
        shutting_down=shutting_down,
        apparmor=keeper.apparmor,
        compares_taints=settings.admission.compares_taints,
    )


def resource_list(amounts: dict[str, Decimal]) -> dict[str, str]:
    """Amounts as a ResourceList of the API shows them."""
    return {
        name: format_milli(int(amount * 1000)) if name == "cpu" else format_bytes(int(amount))
        for name, amount in amounts.items()
    }
