"""Makes the whole agent from Settings: build_core() joins what the other modules of this folder make.

core.py runs and closes the parts; agent/app.py owns them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.admission.plan.admit import NodeView
from agent.build import credentials, derive, pod_sources
from agent.build.base import USER_AGENT, Base, apply_process_limits, build_base, find_first_address
from agent.build.cgroup_driver import with_driver_of
from agent.build.checkpoints import build_checkpoints
from agent.build.core import Core
from agent.build.eviction import build_eviction
from agent.build.gates import node_gates
from agent.build.node import build_cgroups, firewall_tasks, lease, node_keeper
from agent.build.plugins import BuiltPlugins, build_devices, build_plugins
from agent.build.pods import pod_deps, pod_volumes, volume_expander
from agent.build.pods_api import build_pods_api
from agent.build.shutdown import shutdown_tasks
from agent.build.static import build_static
from agent.build.volumes import BuiltVolumes
from agent.common.model.pods import ContainerState, Pod, RunState
from agent.logs.edge import log_folder
from agent.logs.edge.log_sizes import LogSizes
from agent.logs.work import LogRotation
from agent.managers.work import TopologyAffinity
from agent.node.work.node import NodeManager
from agent.pods.edge.pod_counts import PodCounts
from agent.pods.edge.resize_counts import ResizeCounts
from agent.pods.work.connections import LimitedConnections
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_stages import stages
from agent.pods.work.pod_workers import PodWorkers
from agent.pods.work.registry import PodRegistry
from agent.probes.edge import ProbeIo
from agent.probes.places import Places
from agent.probes.work import ProbeManager
from agent.resources.metrics import KeptMemory
from agent.resources.plan.resize_labels import counted
from agent.resources.work.cgroups import KubepodsTree
from agent.settings import Settings
from agent.static.work.mirrors import MirrorPods
from agent.stats.edge import machine
from agent.stats.edge.cgroups import CgroupReader
from agent.stats.model import VolumeStats
from agent.stats.work.provider import StatsProvider, StatsSources
from agent.volumes.edge.certificate_metrics import PodCertificateCounts
from agent.volumes.edge.volume_metrics import VolumeCounts, VolumeStatsCollector
from agent.volumes.work.local_stats import LocalStats
from nodelib.clock import SystemClock


async def build_core(settings: Settings, *, watch_nodes: bool = False) -> Core:
    """All parts of the agent, not started. `watch_nodes`: something follows `base.nodes`.

    Each part is complete when it is made, from the parts before it; only the server comes later (Core.start_server).
    Later changes reach a part through the Observables of Base.

    Raises NodewrightError when something is missing that the agent cannot run without.
    """
    apply_process_limits(settings)
    base = await _connected_base(settings)

    affinity = TopologyAffinity()
    devices = await build_devices(base, affinity)
    checkpoints = await build_checkpoints(base, devices, affinity)
    plugins = await build_plugins(base, devices, checkpoints.managers)

    keeper = node_keeper(base, plugins, watch_nodes=watch_nodes)
    cgroups = await build_cgroups(base, keeper, checkpoints.managers.has_exclusive_cpus)

    volumes = pod_volumes(base, keeper, cgroups.facts, plugins.csi, checkpoints.user_namespaces)
    probe_io = ProbeIo(base.connections.cri, base.host_resolver, base.handshakes.turns_for)
    gates = node_gates(base.machine.facts().cpus)
    places = Places(commands=gates.probes)
    probes = ProbeManager(probe_io, base.events, base.pods.wake, base.clock, base.metrics, places, settings.probe_gates)
    mirrors = MirrorPods()
    deps = pod_deps(base, keeper, volumes, cgroups.kubepods, checkpoints, plugins, probes, gates, mirrors.of)
    pod_workers = _pod_workers(base, keeper, deps)

    static = build_static(base, keeper, pod_workers, mirrors, deps.status.manager)
    api_pods = pod_sources.PodSourceRouter(pod_workers, static.mirrors)
    local = LocalStats(volumes.local, machine.filesystem)
    stats = _stats(base, plugins, local)
    _register_metrics(base, plugins, volumes, local, cgroups.kubepods)
    return Core(
        base=base,
        keeper=keeper,
        lease=lease(base),
        pod_deps=deps,
        pod_workers=pod_workers,
        checkpoints=checkpoints,
        volumes=volumes,
        expander=volume_expander(base, volumes, plugins),
        plugins=plugins,
        probes=probes,
        probe_io=probe_io,
        commands=gates.commands,
        stats=stats,
        allocatable=cgroups.allocatable,
        system_cgroups=cgroups.system,
        eviction=build_eviction(base, keeper, deps.observer, stats, checkpoints.pulls),
        shutdown=shutdown_tasks(base, keeper),
        firewall=firewall_tasks(base),
        rotation=_rotation(base),
        api_pods=api_pods,
        pods_watch=pod_sources.pods_watch(base, api_pods),
        static=static,
        pods_api=build_pods_api(base),
        limited_connections=LimitedConnections(base.pods, base.events, base.metrics),
    )


async def _connected_base(settings: Settings) -> Base:
    """Base, once there are credentials for the API server and an address of this node."""
    clock = SystemClock()
    found = await credentials.find_credentials(settings, clock, user_agent=USER_AGENT, in_background=True)
    base = build_base(settings, clock, found)
    await find_first_address(base.addresses)
    on_old = base.metrics.cri_names_no_driver
    return replace(base, settings=await with_driver_of(base.connections.cri, settings, clock, on_old))


def _pod_workers(base: Base, keeper: NodeManager, deps: PodDeps) -> PodWorkers:
    def node_view() -> NodeView:
        return derive.node_view(base.settings, keeper, base.pressures.now, shutting_down=base.shutting_down.now)

    return PodWorkers(base.pods, deps, node_view, pod_sources.sources(base.settings))


def _stats(base: Base, plugins: BuiltPlugins, local: LocalStats) -> StatsProvider:
    async def served() -> dict[str, tuple[VolumeStats, ...]]:
        found = dict(await local.by_pod())
        for uid, volumes in (await plugins.csi_stats.by_pod()).items():
            found[uid] = (*found.get(uid, ()), *volumes)
        return found

    cri = base.connections.cri
    sources = StatsSources(base.pods, cri, cri, CgroupReader(), machine, served, base.metrics.volume_measured)
    huge_pages = sum(base.machine.facts().hugepages.values())
    return StatsProvider(derive.stats_settings(base.settings, huge_pages), sources, base.clock)


def _rotation(base: Base) -> LogRotation:
    def containers() -> Iterator[ContainerState]:
        for pod in base.pods.pods():
            yield from base.pods.observed(pod.uid).containers

    on_rotated = base.metrics.container_log_rotations.inc
    return LogRotation(base.settings.logs, base.connections.cri, log_folder, containers, base.clock, on_rotated)


def _register_metrics(
    base: Base, plugins: BuiltPlugins, volumes: BuiltVolumes, local: LocalStats, kubepods: KubepodsTree
) -> None:
    """The metrics that are computed at each scrape."""
    pods = base.pods
    for collector in (
        PodCounts(pods, lambda: stages(pods.memories(), {pod.uid for pod in pods.active()})),
        ResizeCounts(lambda: counted((one.desired, one.resize) for one in pods.memories())),
        LogSizes(base.settings.paths.pod_logs_dir, lambda: _running(pods)),
        base.certificates.collector(base.clock),
        VolumeStatsCollector(lambda: [*plugins.csi_stats.latest(), *local.latest()]),
        VolumeCounts(volumes.manager.counts),
        PodCertificateCounts(volumes.certificates.states),
    ):
        base.metrics.registry.register(collector)
    if base.settings.cgroups.pods.memory.on:
        base.metrics.registry.register(KeptMemory(lambda: kubepods.kept))


def _running(pods: PodRegistry) -> Iterator[tuple[Pod, str]]:
    for pod in pods.pods():
        yield from ((pod, one.name) for one in pods.observed(pod.uid).containers if one.state is RunState.RUNNING)
