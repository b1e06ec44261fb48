"""The parts of the agent, made from Settings and joined; app.py owns their tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent import derive
from agent.edge.api_pods import PodsApi
from agent.edge.cgroups import CgroupTree, SystemdSlices, hugepage_sizes, swap_limits
from agent.edge.checkpoint import CheckpointFiles
from agent.edge.cri import Cri
from agent.edge.events import EventRecorder
from agent.edge.hook_http import HttpHooks
from agent.edge.machine import Machine, addresses_towards, apply_limits, check_swap
from agent.edge.metrics import Metrics
from agent.edge.pod_files import PodFiles
from agent.edge.probe_io import ProbeIo
from agent.errors import CriError
from agent.materials import BuiltMaterials, build_materials
from agent.model.node import NodePlace
from agent.model.pods import ContainerState
from agent.plan import cgroups as cgroup_plan
from agent.settings import KUBERNETES_VERSION, Settings
from agent.work.allocations import Allocations
from agent.work.cgroups import KubepodsTree
from agent.work.hooks import Hooks
from agent.work.images import ImageDesk
from agent.work.lease import LeaseKeeper
from agent.work.logrotate import LogRotation
from agent.work.node import NodeEdges, NodeHooks, NodeKeeper, NodeTimes
from agent.work.parts import Parts
from agent.work.pod_table import PodTable
from agent.work.probes import ProbeKeeper
from agent.work.relist import Observer
from agent.work.report import Reporter
from agent.work.server import KubeletServer, ServerDeps, start
from agent.work.startup import Startups
from agent.work.stats import StatsProvider
from nodelib.clock import Clock, SystemClock
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]
NodesFollower = Callable[[list[NodePlace]], None]
USER_AGENT = "nodewright-agent"
_AUDIT_LATE = 180.0  # seconds; upstream's PLEG is unhealthy after as long
_HEARTBEAT_LIMIT = 5.0  # seconds


class HostAddresses:
    """This node's addresses, asked for again whenever the node's status is made."""

    def __init__(self, server: str, wanted: tuple[str, ...]) -> None:
        self._server, self._wanted = server, wanted
        self.current: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...]:
        """Raises Permanent when there is none."""
        self.current = await addresses_towards(self._server, self._wanted)
        return self.current


@dataclass(slots=True)
class Connections:
    """What reaches outside the process; the heartbeat has a connection that nothing else can clog."""

    api: KubeClient
    heartbeat: KubeClient
    cri: Cri

    async def close(self) -> None:
        await self.api.close()
        await self.heartbeat.close()
        await self.cri.close()


@dataclass(slots=True)
class Core:
    """All parts, joined. tasks() are to be run side by side; stop_work(), then close() end them."""

    settings: Settings
    clock: Clock
    connections: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    keeper: NodeKeeper
    lease: LeaseKeeper
    table: PodTable
    allocations: Allocations
    observer: Observer
    reporter: Reporter
    images: ImageDesk
    materials: BuiltMaterials
    probes: ProbeKeeper
    probe_io: ProbeIo
    stats: StatsProvider
    rotation: LogRotation
    pods_source: Reflector
    followers: list[NodesFollower]
    server: KubeletServer | None = field(default=None)

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {
            "runtime-audit": self.observer.run_audits,
            "runtime-events": self.observer.run_events,
            "runtime-hints": self.observer.run_hints,
            "events": self.events.run,
            "probes": self.probes.run,
            "pods-watch": self._watch_pods,
            "pods-synced": self._tell_synced,
            "pods-sweep": self.table.run_sweeps,
            "pods-resizes": self.table.resizes.run,
            "allocations": self.allocations.run,
            "lease": self.lease.run,
            "log-rotation": self.rotation.run,
            **dict(self.materials.tasks()),
            **self.keeper.tasks(),
        }

    def follow_nodes(self, follower: NodesFollower) -> None:
        """Tell `follower` of all Nodes whenever they change."""
        self.followers.append(follower)

    async def live_sandboxes(self) -> frozenset[str] | None:
        """Every sandbox that the runtime knows; None when it cannot be asked now."""
        try:
            return frozenset(one.id for one in await self.connections.cri.list_sandboxes())
        except CriError:
            return None

    def health(self) -> str:
        """Why the pod loop is not well, or ""."""
        if not self.observer.audited.is_set():
            return f"the container runtime has not been seen yet: {self.observer.last_error}"
        age = self.clock.monotonic() - self.observer.last_audit
        if age > _AUDIT_LATE:
            return f"the container runtime was last seen {age:.0f} s ago: {self.observer.last_error}"
        return ""

    async def start_server(self) -> None:
        """Listen on the kubelet's ports. Raises Invalid (certificates, a taken port)."""
        self.server = await start(
            ServerDeps(
                settings=self.settings.server,
                node=derive.served_node(self.settings, self.addresses.current),
                pods=self.table,
                runtime=self.connections.cri,
                client=self.connections.api,
                registry=self.metrics.registry,
                health=self.health,
                stats=self.stats,
                probe_registry=self.metrics.probe_registry,
            )
        )

    async def stop_work(self) -> None:
        """Stop the server and all workers; pods run on."""
        if self.server is not None:
            await self.server.close()
        await self.table.close()
        await self.images.close()
        await self.reporter.close()
        await self.events.flush()

    async def close(self) -> None:
        """Close the connections."""
        await self.materials.close()
        await self.probe_io.close()
        await self.connections.close()

    async def _watch_pods(self) -> None:
        # Running pods would be taken for new ones by a plan that has not seen the runtime.
        await self.observer.audited.wait()
        await self.pods_source.run()

    async def _tell_synced(self) -> None:
        await self.pods_source.synced.wait()
        self.table.synced.set()
        await asyncio.Event().wait()


async def build_core(settings: Settings, *, wants_nodes: bool = False) -> Core:
    """Raises NodewrightError for what the agent cannot run without. `wants_nodes`: somebody follows all Nodes."""
    clock = SystemClock()
    _own_limits(settings)
    access = load_kubeconfig(settings.api.kubeconfig)
    metrics = Metrics(settings.node.name, KUBERNETES_VERSION)
    made = Connections(
        KubeClient(access, user_agent=USER_AGENT),
        KubeClient(access, user_agent=USER_AGENT, timeout=_HEARTBEAT_LIMIT),
        Cri(settings.runtime.endpoint, operation=metrics.runtime_operation),
    )
    events = EventRecorder(made.api, settings.node.name, clock)
    addresses = HostAddresses(access.server, settings.node.ips)
    followers: list[NodesFollower] = []
    machine = Machine(settings.paths.root_dir)
    keeper = _node_keeper(settings, made, machine, events, clock, addresses, followers if wants_nodes else None)
    await _first_address(addresses)
    return await _join(settings, clock, made, metrics, events, addresses, keeper, machine, followers)


async def _join(
    settings: Settings,
    clock: Clock,
    made: Connections,
    metrics: Metrics,
    events: EventRecorder,
    addresses: HostAddresses,
    keeper: NodeKeeper,
    machine: Machine,
    followers: list[NodesFollower],
) -> Core:
    tree = CgroupTree.detect()
    cgroups, sizes = await _kubepods(settings, tree, keeper)
    table = PodTable(lambda: derive.node_view(settings, keeper))
    built = build_materials(
        made.api,
        derive.material_settings(settings),
        clock=clock,
        node=lambda: derive.material_node(keeper, addresses.current),
        policy=derive.cgroup_policy(settings),
        machine=cgroup_plan.Machine(
            memory=machine.facts().memory,
            cgroup_version=tree.version,
            hugepage_sizes=sizes,
            swap=swap_limits(tree),
            single_process_oom_kill=settings.cgroups.single_process_oom_kill,
        ),
        notify=table.refresh,
        warn=lambda pod, reason, message: events.emit(pod.raw, "Warning", reason, message),
    )
    allocations = Allocations(CheckpointFiles(settings.paths.root_dir), clock)
    await allocations.load()
    files = PodFiles(settings.paths.pod_logs_dir, settings.paths.container_logs_dir)
    startups = Startups(metrics, clock)
    observer = Observer(made.cri, files, clock, table.on_seen, metrics)
    api = PodsApi(made.api)
    probe_io = ProbeIo(made.cri)
    probes = ProbeKeeper(probe_io, events, table.on_probe, clock, metrics)
    parts = Parts(
        runtime=made.cri,
        images=ImageDesk(
            made.cri,
            built.materials,
            events,
            clock,
            parallel=settings.images.parallel_pulls or 32,
            figures=metrics,
            startups=startups,
        ),
        materials=built.materials,
        cgroups=cgroups,
        allocations=allocations,
        probes=probes,
        events=events,
        api=api,
        reporter=Reporter(api, clock, metrics),
        observer=observer,
        files=files,
        hooks=Hooks(made.cri, HttpHooks(), clock),
        figures=metrics,
        startups=startups,
        clock=clock,
        host_ips=lambda: addresses.current,
        network_ready=lambda: not any("network not ready" in text for text in keeper.runtime.problems),
    )
    table.connect(parts)
    metrics.watch_pods(table)
    metrics.watch_certificates(built.certificates.states)
    return Core(
        settings=settings,
        clock=clock,
        connections=made,
        metrics=metrics,
        events=events,
        addresses=addresses,
        keeper=keeper,
        lease=LeaseKeeper(
            made.heartbeat,
            settings.node.name,
            lambda: keeper.uid,
            duration=settings.status.lease_duration,
            clock=clock,
        ),
        table=table,
        allocations=allocations,
        observer=observer,
        reporter=parts.reporter,
        images=parts.images,
        materials=built,
        probes=probes,
        probe_io=probe_io,
        stats=StatsProvider(derive.stats_settings(settings), table, made.cri, made.cri, clock),
        rotation=_rotation(settings, made.cri, table, clock, metrics.log_rotations.inc),
        pods_source=Reflector(
            made.api,
            "/api/v1/pods",
            name="pods of this node",
            params={"fieldSelector": f"spec.nodeName={settings.node.name}"},
            on_change=table.on_pod,
        ),
        followers=followers,
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


def _node_keeper(
    settings: Settings,
    made: Connections,
    machine: Machine,
    events: EventRecorder,
    clock: Clock,
    addresses: HostAddresses,
    followers: list[NodesFollower] | None,
) -> NodeKeeper:
    def told(nodes: list[NodePlace]) -> None:
        for follower in followers or ():
            follower(nodes)

    return NodeKeeper(
        NodeEdges(made.api, made.cri, made.cri, machine, events, clock, addresses.look),
        NodeHooks(on_pod_cidrs=lambda cidrs: None, on_nodes=told if followers is not None else None),
        derive.node_policy(settings),
        port=settings.server.port,
        register=settings.node.register,
        times=NodeTimes(
            settings.status.update_frequency,
            settings.status.report_frequency,
            settings.eviction.pressure_transition_period,
        ),
    )


def _rotation(
    settings: Settings, cri: Cri, table: PodTable, clock: Clock, on_rotated: Callable[[], None]
) -> LogRotation:
    def containers() -> Iterator[ContainerState]:
        for pod in table.pods():
            yield from table.observed(pod.uid).containers

    return LogRotation(settings.logs, cri, containers, clock, on_rotated)


async def _first_address(addresses: HostAddresses) -> None:
    try:
        await addresses.look()
    except NodewrightError as error:
        log.warning("%s", error)
