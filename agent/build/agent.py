"""The parts of the agent, made from Settings and joined; core.py names their tasks, app.py owns them."""

from __future__ import annotations

from collections.abc import Iterator

from agent.build import credentials, derive
from agent.build import static as static_pods
from agent.build.base import USER_AGENT, Base, build_base, first_address, own_limits
from agent.build.checkpoints import build_checkpoints
from agent.build.core import Core, NodesFollower
from agent.build.eviction import BuiltEviction, EvictionDeps, build_eviction
from agent.build.managers import connect
from agent.build.node import cgroup_facts, kubepods, lease, node_allocatable, node_keeper
from agent.build.plugins import BuiltPlugins, build_plugins
from agent.build.pods import pod_materials, pod_parts
from agent.build.shutdown import shutdown_tasks
from agent.common.model.pods import ContainerState
from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.images.work.pull_records import PullRecords
from agent.logs.edge import log_folder
from agent.logs.work import LogRotation
from agent.node.work.node import NodeKeeper
from agent.pods.edge.api_pods import PodsApi
from agent.pods.work.pod_stages import stages
from agent.pods.work.pod_table import PodTable
from agent.probes.edge import ProbeIo
from agent.probes.work import ProbeKeeper
from agent.resources.edge import CgroupTree
from agent.runtime.work.relist import Observer
from agent.settings import Settings
from agent.stats.edge import readings as machine_figures
from agent.stats.work import StatsProvider, StatsSources
from agent.volumes.edge.volume_metrics import VolumeCounts
from nodelib.clock import SystemClock
from nodelib.kube.reflector import Reflector


async def build_core(settings: Settings, *, wants_nodes: bool = False) -> Core:
    """Raises NodewrightError for what the agent cannot run without. `wants_nodes`: somebody follows all Nodes."""
    own_limits(settings)
    clock = SystemClock()
    found = await credentials.find_credentials(settings, clock, user_agent=USER_AGENT, meanwhile=True)
    ground = build_base(settings, clock, found)
    followers: list[NodesFollower] = []
    keeper = node_keeper(ground, followers if wants_nodes else None)
    credentials.add_keepers(
        ground.credentials, settings, clock, ground.made.api, lambda: keeper.node, ground.made.reconnect
    )
    await first_address(ground.addresses)
    tree = CgroupTree.detect()
    ledgers = await build_checkpoints(ground)
    has_exclusive_cpus = ledgers.managers.has_exclusive_cpus
    cgroups, sizes = await kubepods(settings, tree, keeper, has_exclusive_cpus)
    allocatable = node_allocatable(ground, tree, cgroups, keeper)
    await allocatable.reserve()
    ground.pressures.follow(keeper.poke)
    ground.going.follow(keeper.poke)
    table = PodTable(
        lambda: derive.node_view(settings, keeper, ground.pressures.now, going=ground.going.now),
        static_pods.sources(settings),
    )
    plugins = await build_plugins(
        ground.made.api,
        settings.paths.root_dir,
        settings.node.name,
        clock=ground.clock,
        keeper=keeper,
        table=table,
        managers=ledgers.managers,
        events=ground.events,
        figures=PodResourcesMetrics(ground.metrics.registry),
    )
    built = pod_materials(ground, keeper, table, cgroup_facts(ground, tree, sizes, has_exclusive_cpus), plugins.csi)
    connect(ledgers.managers, table, plugins.devices)
    probe_io = ProbeIo(ground.made.cri)
    probes = ProbeKeeper(probe_io, ground.events, table.on_probe, ground.clock, ground.metrics)
    parts = pod_parts(
        ground, keeper, table, built, cgroups, ledgers, plugins, probes, lambda pod: static.mirrors.of(pod)
    )
    static = static_pods.build_static(
        settings, table, PodsApi(ground.made.api), ground.events, clock, parts.reporter, keeper
    )
    table.connect(parts)
    ground.metrics.watch_pods(table, lambda: stages(table.memories(), {pod.uid for pod in table.active()}))
    ground.metrics.registry.register(ground.credentials.collector(clock))
    ground.metrics.registry.register(VolumeCounts(plugins.csi_stats.latest))
    ground.metrics.watch_certificates(built.certificates.states)
    stats = _stats(ground, table, plugins)
    return Core(
        settings=settings,
        clock=clock,
        credentials=ground.credentials,
        connections=ground.made,
        metrics=ground.metrics,
        events=ground.events,
        addresses=ground.addresses,
        keeper=keeper,
        lease=lease(ground, keeper),
        table=table,
        ledgers=ledgers.tasks(),
        observer=parts.observer,
        reporter=parts.reporter,
        images=parts.images,
        materials=built,
        plugins=plugins,
        probes=probes,
        probe_io=probe_io,
        stats=stats,
        allocatable=allocatable,
        pressure=_pressure(ground, keeper, table, parts.observer, stats, ledgers.pulls),
        departure=shutdown_tasks(settings, clock, ground.events, ground.metrics, keeper, table, ground.going),
        rotation=_rotation(ground, table),
        pods_source=_pods_source(ground, static),
        static=static,
        followers=followers,
    )


def _stats(ground: Base, table: PodTable, plugins: BuiltPlugins) -> StatsProvider:
    cri = ground.made.cri
    sources = StatsSources(table, cri, cri, machine_figures.CgroupReader(), machine_figures, plugins.csi_stats.figures)
    return StatsProvider(derive.stats_settings(ground.settings), sources, ground.clock)


def _pressure(
    ground: Base,
    keeper: NodeKeeper,
    table: PodTable,
    observer: Observer,
    stats: StatsProvider,
    pulls: PullRecords,
) -> BuiltEviction:
    return build_eviction(
        EvictionDeps(
            settings=ground.settings,
            clock=ground.clock,
            cri=ground.made.cri,
            events=ground.events,
            figures=ground.metrics,
            keeper=keeper,
            table=table,
            observer=observer,
            stats=stats,
            pressures=ground.pressures,
            pulls=pulls,
        )
    )


def _rotation(ground: Base, table: PodTable) -> LogRotation:
    def containers() -> Iterator[ContainerState]:
        for pod in table.pods():
            yield from table.observed(pod.uid).containers

    on_rotated = ground.metrics.log_rotations.inc
    return LogRotation(ground.settings.logs, ground.made.cri, log_folder, containers, ground.clock, on_rotated)


def _pods_source(ground: Base, static: static_pods.StaticParts) -> Reflector:
    return Reflector(
        ground.made.api,
        "/api/v1/pods",
        name="pods of this node",
        params={"fieldSelector": f"spec.nodeName={ground.settings.node.name}"},
        on_change=static.on_api_pod,
        on_first=static.on_api_pods,
    )
