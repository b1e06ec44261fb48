"""The parts of the agent, made from Settings and joined; core.py names their tasks, app.py owns them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from agent import credentials, derive
from agent import static as static_pods
from agent.core import Connections, Core, HostAddresses, NodesFollower
from agent.departure import shutdown_tasks
from agent.edge import log_folder
from agent.edge import stats as machine_figures
from agent.edge.api_pods import PodsApi
from agent.edge.cgroups import CgroupTree, SystemdSlices, hugepage_sizes, swap_limits
from agent.edge.checkpoint import CheckpointFiles
from agent.edge.cri import Cri
from agent.edge.hook_http import HttpHooks
from agent.edge.machine import Machine, apply_limits, check_swap
from agent.edge.metrics import Metrics
from agent.edge.no_api import NoApi
from agent.edge.pod_files import PodFiles
from agent.edge.probe_io import ProbeIo
from agent.edge.volume_metrics import VolumeCounts
from agent.image_access import build_pull_credentials
from agent.materials import BuiltMaterials, build_materials
from agent.model.node import NodePlace
from agent.model.pods import ContainerState, Pod
from agent.plan import cgroups as cgroup_plan
from agent.plan.pull_records import VerifyPolicy
from agent.plan.shutdown import NOT_READY
from agent.plan.swap import LIMITED, Swap
from agent.plugins import BuiltPlugins, build_plugins
from agent.ports import PodCgroups
from agent.pressure import BuiltPressure, Surroundings, build_pressure
from agent.settings import KUBERNETES_VERSION, Settings
from agent.work.allocations import Allocations
from agent.work.cgroups import KubepodsTree
from agent.work.csi import CsiVolumes
from agent.work.endings import Endings
from agent.work.events import EventRecorder
from agent.work.hooks import Hooks
from agent.work.images import ImageDesk
from agent.work.lease import LeaseKeeper
from agent.work.local_node import LocalNode
from agent.work.logrotate import LogRotation
from agent.work.node import NodeEdges, NodeHooks, NodeKeeper, NodeTimes
from agent.work.node_allocatable import AllocatableParts, NodeAllocatable
from agent.work.parts import Parts
from agent.work.pod_table import PodTable
from agent.work.probes import ProbeKeeper
from agent.work.pull_records import PullRecords
from agent.work.relist import Observer
from agent.work.report import Reporter
from agent.work.startup import Startups
from agent.work.stats import StatsProvider, StatsSources
from agent.work.told import Told
from nodelib.clock import Clock, SystemClock
from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector

log = logging.getLogger(__name__)

USER_AGENT = "nodewright-agent"
_HEARTBEAT_LIMIT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class _Ground:
    """What every other part stands on: settings, time, connections, and who is told what happens."""

    settings: Settings
    clock: Clock
    credentials: credentials.Credentials
    made: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    machine: Machine
    pressures: Told[tuple[str, ...]]
    going: Told[bool]


async def build_core(settings: Settings, *, wants_nodes: bool = False) -> Core:
    """Raises NodewrightError for what the agent cannot run without. `wants_nodes`: somebody follows all Nodes."""
    _own_limits(settings)
    clock = SystemClock()
    found = await credentials.find_credentials(settings, clock, user_agent=USER_AGENT, meanwhile=True)
    ground = _ground(settings, clock, found)
    followers: list[NodesFollower] = []
    keeper = _node_keeper(ground, followers if wants_nodes else None)
    credentials.add_keepers(
        ground.credentials, settings, clock, ground.made.api, lambda: keeper.node, ground.made.reconnect
    )
    await _first_address(ground.addresses)
    tree = CgroupTree.detect()
    cgroups, sizes = await _kubepods(settings, tree, keeper)
    allocatable = _node_allocatable(ground, tree, cgroups, keeper)
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
        events=ground.events,
    )
    built = _materials(ground, keeper, table, _cgroup_machine(ground, tree, sizes), plugins.csi)
    ledgers = await _ledgers(ground)
    probe_io = ProbeIo(ground.made.cri)
    probes = ProbeKeeper(probe_io, ground.events, table.on_probe, ground.clock, ground.metrics)
    parts = _parts(ground, keeper, table, built, cgroups, ledgers, plugins, probes, lambda pod: static.mirrors.of(pod))
    static = static_pods.build_static(
        settings, table, PodsApi(ground.made.api), ground.events, clock, parts.reporter, keeper
    )
    table.connect(parts)
    ground.metrics.watch_pods(table)
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
        lease=_lease(ground, keeper),
        table=table,
        allocations=ledgers.allocations,
        endings=ledgers.endings,
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


def _ground(settings: Settings, clock: Clock, found: credentials.Credentials) -> _Ground:
    access = found.access
    metrics = Metrics(settings.node.name, KUBERNETES_VERSION)
    api, heartbeat = (
        (NoApi(), NoApi())
        if settings.standalone
        else (
            KubeClient(access, user_agent=USER_AGENT),
            KubeClient(access, user_agent=USER_AGENT, timeout=_HEARTBEAT_LIMIT),
        )
    )
    made = Connections(
        api,
        heartbeat,
        Cri(settings.runtime.endpoint, operation=metrics.runtime_operation),
    )
    return _Ground(
        settings=settings,
        clock=clock,
        credentials=found,
        made=made,
        metrics=metrics,
        events=EventRecorder(made.api, settings.node.name, clock, sent=not settings.standalone),
        addresses=HostAddresses(access.server, settings.node.ips),
        machine=Machine(settings.paths.root_dir, settings.cgroups.root),
        pressures=Told(()),
        going=Told(False),
    )


def _own_limits(settings: Settings) -> None:
    check_swap(settings.process.fail_swap_on)
    limits = settings.process
    for undone in apply_limits(max_open_files=limits.max_open_files, oom_score_adj=limits.oom_score_adj):
        log.warning("%s", undone)


async def _kubepods(settings: Settings, tree: CgroupTree, keeper: NodeKeeper) -> tuple[KubepodsTree, tuple[int, ...]]:
    policy, sizes = derive.cgroup_policy(settings), hugepage_sizes()
    slices = SystemdSlices() if policy.driver == "systemd" else None
    cgroups = KubepodsTree(tree, policy, hugepage_sizes=sizes, slices=slices)
    await cgroups.setup(keeper.enforced)
    return cgroups, sizes


@dataclass(frozen=True, slots=True)
class _Ledgers:
    """What is known of pods and images beyond the life of the agent, in small files."""

    allocations: Allocations
    endings: Endings
    pulls: PullRecords


async def _ledgers(ground: _Ground) -> _Ledgers:
    root, clock = ground.settings.paths.root_dir, ground.clock
    images = ground.settings.images
    checkpoints = CheckpointFiles(root)
    pulling, pulled = (CheckpointFiles(f"{root}/image_manager/{name}") for name in ("pulling", "pulled"))
    found = _Ledgers(
        Allocations(checkpoints, clock),
        Endings(checkpoints, clock),
        PullRecords(VerifyPolicy(images.verify, images.allowlist), pulling, pulled, clock),
    )
    await found.allocations.load()
    await found.endings.load()
    await found.pulls.load(ground.made.cri.list_images)
    return found


def _node_allocatable(ground: _Ground, tree: CgroupTree, cgroups: KubepodsTree, keeper: NodeKeeper) -> NodeAllocatable:
    slices = SystemdSlices() if ground.settings.cgroups.driver == "systemd" else None
    parts = AllocatableParts(tree, slices, cgroups.enforce, ground.events, ground.clock, lambda: keeper.ref)
    return NodeAllocatable(derive.reserved(ground.settings, tree.version), parts)


def _cgroup_machine(ground: _Ground, tree: CgroupTree, sizes: tuple[int, ...]) -> cgroup_plan.Machine:
    facts, wanted = ground.machine.facts(), ground.settings.cgroups
    if wanted.swap_behavior == LIMITED and tree.version == 1:
        log.warning("memorySwap.swapBehavior: LimitedSwap needs cgroup v2: containers get no swap here")
    return cgroup_plan.Machine(
        memory=facts.memory,
        cgroup_version=tree.version,
        hugepage_sizes=sizes,
        swap=Swap(swap_limits(tree), wanted.swap_behavior, facts.swap, facts.memory),
        single_process_oom_kill=wanted.single_process_oom_kill,
    )


def _materials(
    ground: _Ground, keeper: NodeKeeper, table: PodTable, machine: cgroup_plan.Machine, csi: CsiVolumes
) -> BuiltMaterials:
    return build_materials(
        ground.made.api,
        derive.material_settings(ground.settings),
        clock=ground.clock,
        node=lambda: derive.material_node(keeper, ground.addresses.current),
        policy=derive.cgroup_policy(ground.settings),
        machine=machine,
        notify=table.refresh,
        warn=lambda pod, reason, message: ground.events.emit(pod.raw, "Warning", reason, message),
        csi=csi,
    )


def _parts(
    ground: _Ground,
    keeper: NodeKeeper,
    table: PodTable,
    built: BuiltMaterials,
    cgroups: PodCgroups,
    ledgers: _Ledgers,
    plugins: BuiltPlugins,
    probes: ProbeKeeper,
    mirror: Callable[[Pod], Pod | None],
) -> Parts:
    """What the pods' workers work with."""
    settings, cri, clock, metrics = ground.settings, ground.made.cri, ground.clock, ground.metrics
    files = PodFiles(settings.paths.pod_logs_dir, settings.paths.container_logs_dir)
    startups = Startups(metrics, clock)
    api = PodsApi(ground.made.api)
    images = ImageDesk(
        cri,
        build_pull_credentials(settings, built.materials, clock),
        ground.events,
        clock,
        parallel=settings.images.parallel_pulls or 32,
        figures=metrics,
        startups=startups,
        records=ledgers.pulls,
    )
    return Parts(
        runtime=cri,
        images=images,
        materials=built.materials,
        cgroups=cgroups,
        allocations=ledgers.allocations,
        endings=ledgers.endings,
        devices=plugins.devices,
        claims=plugins.claims,
        probes=probes,
        events=ground.events,
        api=api,
        reporter=Reporter(api, clock, metrics),
        observer=Observer(cri, files, clock, table.on_seen, metrics),
        files=files,
        hooks=Hooks(cri, HttpHooks(), clock),
        figures=metrics,
        startups=startups,
        clock=clock,
        host_ips=lambda: ground.addresses.current,
        network_ready=lambda: keeper.runtime.network_ready,
        mirror=mirror,
    )


def _node_keeper(ground: _Ground, followers: list[NodesFollower] | None) -> NodeKeeper:
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


def _lease(ground: _Ground, keeper: NodeKeeper) -> LeaseKeeper:
    return LeaseKeeper(
        ground.made.heartbeat,
        ground.settings.node.name,
        lambda: keeper.uid,
        duration=ground.settings.status.lease_duration,
        clock=ground.clock,
    )


def _stats(ground: _Ground, table: PodTable, plugins: BuiltPlugins) -> StatsProvider:
    cri = ground.made.cri
    sources = StatsSources(table, cri, cri, machine_figures.CgroupReader(), machine_figures, plugins.csi_stats.figures)
    return StatsProvider(derive.stats_settings(ground.settings), sources, ground.clock)


def _pressure(
    ground: _Ground,
    keeper: NodeKeeper,
    table: PodTable,
    observer: Observer,
    stats: StatsProvider,
    pulls: PullRecords,
) -> BuiltPressure:
    return build_pressure(
        Surroundings(
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


def _rotation(ground: _Ground, table: PodTable) -> LogRotation:
    def containers() -> Iterator[ContainerState]:
        for pod in table.pods():
            yield from table.observed(pod.uid).containers

    on_rotated = ground.metrics.log_rotations.inc
    return LogRotation(ground.settings.logs, ground.made.cri, log_folder, containers, ground.clock, on_rotated)


def _pods_source(ground: _Ground, static: static_pods.StaticParts) -> Reflector:
    return Reflector(
        ground.made.api,
        "/api/v1/pods",
        name="pods of this node",
        params={"fieldSelector": f"spec.nodeName={ground.settings.node.name}"},
        on_change=static.on_api_pod,
    )


async def _first_address(addresses: HostAddresses) -> None:
    try:
        await addresses.look()
    except NodewrightError as error:
        log.warning("%s", error)
