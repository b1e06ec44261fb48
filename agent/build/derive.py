"""From the agent's Settings to what each part is told, and from one part's facts to another's words. Pure."""

from __future__ import annotations

from decimal import Decimal

from agent.admission.plan.admit import NodeView
from agent.common.model.pod_settings import NodeContext, PodDefaults
from agent.common.model.pods import Json
from agent.eviction.model import EvictionPolicy
from agent.eviction.plan.thresholds import thresholds
from agent.images.plan.image_gc import ImageGcPolicy
from agent.node.model import NodePolicy
from agent.node.plan.shutdown import Period, periods
from agent.node.work.node import NodeKeeper
from agent.resources.plan.cgroups import Policy, path_of, root_name
from agent.resources.plan.node_allocatable import Reservation, Reserved
from agent.resources.plan.node_allocatable import reserved as reserved_cgroups
from agent.server.work import ServedNode
from agent.settings import Settings
from agent.stats.work import StatsSettings
from nodelib.quantity import format_bytes, format_milli


def node_policy(settings: Settings) -> NodePolicy:
    return NodePolicy(
        name=settings.node.name,
        labels=settings.node.labels,
        taints=settings.node.taints,
        provider_id=settings.node.provider_id,
        controller_attach_detach=settings.node.controller_attach_detach,
        max_pods=settings.pods.max_pods,
        pods_per_core=settings.pods.pods_per_core,
        max_images=settings.status.max_images,
        kube_reserved=settings.cgroups.kube_reserved,
        system_reserved=settings.cgroups.system_reserved,
        eviction_hard=settings.eviction.hard,
        enforce_pods="pods" in settings.cgroups.enforce,
    )


def eviction_policy(settings: Settings) -> EvictionPolicy:
    eviction = settings.eviction
    found = thresholds(
        eviction.hard,
        eviction.soft,
        eviction.soft_grace,
        eviction.minimum_reclaim,
        enforce_pods="pods" in settings.cgroups.enforce,
    )
    return EvictionPolicy(found, eviction.pressure_transition_period, eviction.max_grace, eviction.local_storage)


def image_gc_policy(settings: Settings) -> ImageGcPolicy:
    images = settings.images
    return ImageGcPolicy(images.gc_high, images.gc_low, images.gc_min_age, images.gc_max_age)


def shutdown_periods(settings: Settings) -> tuple[Period, ...]:
    shutdown = settings.shutdown
    return periods((Period(*one) for one in shutdown.by_priority), shutdown.whole, shutdown.critical)


def reserved(settings: Settings, cgroup_version: int) -> tuple[Reserved, ...]:
    cgroups = settings.cgroups
    reservations = (
        Reservation("system-reserved", cgroups.system_reserved, cgroups.system_reserved_cgroup),
        Reservation("kube-reserved", cgroups.kube_reserved, cgroups.kube_reserved_cgroup),
    )
    return reserved_cgroups(cgroups.enforce, reservations, cgroup_version)


def cgroup_policy(settings: Settings) -> Policy:
    cgroups = settings.cgroups
    return Policy(
        root=cgroups.root,
        driver=cgroups.driver,
        per_qos=cgroups.per_qos,
        fail_v1=cgroups.fail_v1,
        group_oom_kill=cgroups.single_process_oom_kill is False,
        cpu_quota=cgroups.cpu_cfs_quota,
        cpu_period=round(cgroups.cpu_cfs_period * 1_000_000),
        pids=cgroups.pod_pids_limit,
    )


def material_settings(settings: Settings) -> PodDefaults:
    return PodDefaults(
        node_name=settings.node.name,
        root_dir=settings.paths.root_dir,
        pod_logs_dir=settings.paths.pod_logs_dir,
        cluster_dns=settings.dns.cluster_dns,
        cluster_domain=settings.dns.cluster_domain,
        resolv_conf=settings.dns.resolv_conf,
        seccomp_default=settings.pods.seccomp_default,
    )


def stats_settings(settings: Settings) -> StatsSettings:
    policy = cgroup_policy(settings)
    return StatsSettings(
        node_name=settings.node.name,
        kubepods=path_of(root_name(policy), policy.driver),
        root_dir=settings.paths.root_dir,
        pod_logs_dir=settings.paths.pod_logs_dir,
        node_cgroup=settings.cgroups.root,
        runtime_cgroup=settings.cgroups.runtime_cgroup,
    )


def served_node(settings: Settings, addresses: tuple[str, ...]) -> ServedNode:
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


def material_node(keeper: NodeKeeper, addresses: tuple[str, ...]) -> NodeContext:
    """The node as container configurations depend on it."""
    return NodeContext(
        host_ips=addresses,
        allocatable=quantities(keeper.allocatable),
        recursive_read_only_handlers=frozenset(
            one.name for one in keeper.runtime.handlers if one.recursive_read_only_mounts
        ),
        uid=keeper.uid,
    )


def node_view(
    settings: Settings, keeper: NodeKeeper, pressures: tuple[str, ...] = (), *, going: bool = False
) -> NodeView:
    """The node as admission sees it."""
    spec: Json = (keeper.node or {}).get("spec") or {}
    return NodeView(
        name=settings.node.name,
        labels=keeper.labels,
        taints=tuple(spec.get("taints") or ()),
        allocatable=quantities(keeper.allocatable),
        supplemental_groups_policy=keeper.runtime.supplemental_groups_policy is not False,
        kernel=keeper.kernel,
        unsafe_sysctls=settings.pods.allowed_unsafe_sysctls,
        pressures=pressures,
        shutting_down=going,
        apparmor=keeper.apparmor,
    )


def quantities(amounts: dict[str, Decimal]) -> dict[str, str]:
    """Amounts as a ResourceList shows them."""
    return {
        name: format_milli(int(amount * 1000)) if name == "cpu" else format_bytes(int(amount))
        for name, amount in amounts.items()
    }
