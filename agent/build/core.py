"""The agent, made: its parts, their long-lived tasks, and the order in which they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.build import derive
from agent.build.credentials import Credentials
from agent.build.eviction import BuiltEviction
from agent.build.metrics import Metrics
from agent.build.plugins import BuiltPlugins
from agent.build.server import server_edges
from agent.build.static import StaticParts
from agent.build.volumes import BuiltVolumes
from agent.common.model.errors import CriError
from agent.common.work.events import EventRecorder
from agent.explain.work import Explainer
from agent.images.work.images import ImageManager
from agent.logs.work import LogRotation
from agent.node.edge.machine import addresses_towards
from agent.node.model import NodePlace
from agent.node.work.lease import LeaseKeeper
from agent.node.work.node import NodeKeeper
from agent.pods.work.pod_table import PodTable
from agent.pods.work.report import Reporter
from agent.probes.edge import ProbeIo
from agent.probes.work import ProbeKeeper
from agent.resources.work.node_allocatable import NodeAllocatable
from agent.runtime.edge.cri import Cri
from agent.runtime.work.relist import Observer
from agent.server.work import KubeletServer, ServerDeps, start
from agent.settings import Settings
from agent.stats.work import StatsProvider
from nodelib.clock import Clock
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work

NodesFollower = Callable[[list[NodePlace]], None]
_NETWORK_STEPS = {"ADD": ("network", "sandbox"), "DEL": ("remove network", "stop sandbox")}
_PATIENCE = 3.0  # seconds for containers that are being started when the agent stops; supervisors kill after five
_AUDIT_LATE = 180.0  # seconds; upstream's PLEG is unhealthy after as long


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

    async def reconnect(self) -> None:
        """Dial anew, with the credentials as they are now."""
        await self.api.reconnect()
        await self.heartbeat.reconnect()

    async def close(self) -> None:
        await self.api.close()
        await self.heartbeat.close()
        await self.cri.close()


@dataclass(slots=True)
class Core:
    """All parts, joined. tasks() are to be run side by side; stop_work(), then close() end them."""

    settings: Settings
    clock: Clock
    credentials: Credentials
    connections: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    keeper: NodeKeeper
    lease: LeaseKeeper
    table: PodTable
    ledgers: dict[str, Work]
    observer: Observer
    reporter: Reporter
    images: ImageManager
    volumes: BuiltVolumes
    plugins: BuiltPlugins
    probes: ProbeKeeper
    probe_io: ProbeIo
    stats: StatsProvider
    allocatable: NodeAllocatable
    pressure: BuiltEviction
    departure: dict[str, Work]
    rotation: LogRotation
    pods_source: Reflector
    static: StaticParts
    followers: list[NodesFollower]
    server: KubeletServer | None = field(default=None)

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {**self._local_tasks(), **({} if self.settings.standalone else self._cluster_tasks())}

    def _local_tasks(self) -> dict[str, Work]:
        return {
            "runtime-audit": self.observer.run_audits,
            "runtime-events": self.observer.run_events,
            "runtime-hints": self.observer.run_hints,
            "runtime-starts": self.connections.cri.keep_starts,
            "probes": self.probes.run,
            "pods-sweep": self.table.run_sweeps,
            "pods-resizes": self.table.resizes.run,
            **self.ledgers,
            "log-rotation": self.rotation.run,
            "node-allocatable": self.allocatable.run,
            **self.pressure.tasks(),
            **dict(self.plugins.tasks()),
            **self.static.tasks(self.observer.audited),
            **self.departure,
            **self.keeper.tasks(),
        }

    def _cluster_tasks(self) -> dict[str, Work]:
        """What needs an API server."""
        return {
            "events": self.events.run,
            "pods-watch": self._watch_pods,
            "pods-synced": self._tell_synced,
            "mirror-pods": self.static.keep_mirrors,
            "lease": self.lease.run,
            **dict(self.volumes.tasks()),
            **self.credentials.tasks(),
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

    def network_told(self, uid: str, command: str, seconds: float, failed: str) -> None:
        """The pod network did something for a pod: it is a part of the pod's sandbox step."""
        memory = self.table.memory(uid)
        if memory is not None and command in _NETWORK_STEPS:
            step, of = _NETWORK_STEPS[command]
            memory.timeline.mark(step, seconds, failed or "ok", of=of)

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
                client=None if self.settings.standalone else self.connections.api,
                registry=self.metrics.registry,
                health=self.health,
                heartbeat=self.lease.problem,
                edges=server_edges(),
                explains=self._explainer(),
                images=self.pressure.images,
                stats=self.stats,
                probe_registry=self.metrics.probe_registry,
                translate_uid=self.static.mirrors.translate,
            )
        )

    def _explainer(self) -> Explainer:
        return Explainer(
            self.settings.node.name,
            self.table,
            self.probes,
            self.images,
            self.stats,
            lambda: self.keeper.runtime.problems,
            self.clock,
        )

    async def stop_work(self) -> None:
        """Stop the server and all workers; pods run on."""
        if self.server is not None:
            await self.server.close()
        await self.table.close(_PATIENCE)
        await self.images.close()
        await self.reporter.close()
        if not self.settings.standalone:
            await self.events.flush()

    async def close(self) -> None:
        """Close the connections."""
        await self.static.close()
        await self.volumes.close()
        await self.plugins.close()
        await self.probe_io.close()
        await self.connections.close()

    async def _watch_pods(self) -> None:
        # Running pods would be taken for new ones by a plan that has not seen the runtime.
        await self.observer.audited.wait()
        await self.pods_source.run()

    async def _tell_synced(self) -> None:
        await self.pods_source.synced.wait()
        self.static.mirrors.api_synced()
        self.table.told("api")
        await asyncio.Event().wait()
