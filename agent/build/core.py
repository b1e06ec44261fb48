"""The agent, made: its parts, their long-lived tasks, and the order in which they end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from agent.build import derive
from agent.build.base import Base
from agent.build.checkpoints import Checkpoints
from agent.build.eviction import BuiltEviction
from agent.build.node import NodesFollower
from agent.build.plugins import BuiltPlugins
from agent.build.pod_sources import ApiPods
from agent.build.server import server_edges
from agent.build.static import StaticParts
from agent.build.volumes import BuiltVolumes
from agent.common.model.errors import CriError
from agent.explain.work import Explainer
from agent.logs.work import LogRotation
from agent.node.work.lease import LeaseKeeper
from agent.node.work.node import NodeKeeper
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_workers import PodWorkers
from agent.probes.edge import ProbeIo
from agent.probes.work import ProbeKeeper
from agent.resources.work.node_allocatable import NodeAllocatable
from agent.server.work import KubeletServer, ServerDeps, start
from agent.stats.work import StatsProvider
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work

_NETWORK_STEPS = {
    "ADD": (Activity(ActivityKind.NETWORK), Activity(ActivityKind.SANDBOX)),
    "DEL": (Activity(ActivityKind.REMOVE_NETWORK), Activity(ActivityKind.STOP_SANDBOX)),
}
_PATIENCE = 3.0  # seconds for containers that are being started when the agent stops; supervisors kill after five
_AUDIT_LATE = 180.0  # seconds; upstream's PLEG is unhealthy after as long


@dataclass(slots=True)
class Core:
    """All parts, joined. tasks() are to be run side by side; stop_work(), then close() end them."""

    base: Base
    keeper: NodeKeeper
    lease: LeaseKeeper
    pod_deps: PodDeps
    pod_workers: PodWorkers
    checkpoints: Checkpoints
    volumes: BuiltVolumes
    plugins: BuiltPlugins
    probes: ProbeKeeper
    probe_io: ProbeIo
    stats: StatsProvider
    allocatable: NodeAllocatable
    eviction: BuiltEviction
    shutdown: dict[str, Work]
    rotation: LogRotation
    api_pods: ApiPods
    pods_watch: Reflector
    static: StaticParts
    followers: list[NodesFollower]
    server: KubeletServer | None = field(default=None)

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {**self._local_tasks(), **({} if self.base.settings.standalone else self._cluster_tasks())}

    def _local_tasks(self) -> dict[str, Work]:
        return {
            "runtime-audit": self.pod_deps.observer.run_audits,
            "runtime-events": self.pod_deps.observer.run_events,
            "runtime-hints": self.pod_deps.observer.run_hints,
            "runtime-starts": self.base.connections.cri.keep_starts,
            "probes": self.probes.run,
            "pods-sweep": self.pod_workers.run_sweeps,
            "pods-resizes": self.pod_workers.resizes.run,
            **self.checkpoints.tasks(),
            "log-rotation": self.rotation.run,
            "node-allocatable": self.allocatable.run,
            **self.eviction.tasks(),
            **dict(self.plugins.tasks()),
            **self.static.tasks(self.pod_deps.observer.audited),
            **self.shutdown,
            **self.keeper.tasks(),
        }

    def _cluster_tasks(self) -> dict[str, Work]:
        """What needs an API server."""
        return {
            "events": self.base.events.run,
            "pods-watch": self._watch_pods,
            "pods-synced": self._tell_synced,
            "mirror-pods": self.static.keep_mirrors,
            "lease": self.lease.run,
            **dict(self.volumes.tasks()),
            **self.base.credentials.tasks(),
        }

    def follow_nodes(self, follower: NodesFollower) -> None:
        """Tell `follower` of all Nodes whenever they change."""
        self.followers.append(follower)

    async def live_sandboxes(self) -> frozenset[str] | None:
        """Every sandbox that the runtime knows; None when it cannot be asked now."""
        try:
            return frozenset(one.id for one in await self.base.connections.cri.list_sandboxes())
        except CriError:
            return None

    def on_network_call(self, uid: str, command: str, seconds: float, failed: str) -> None:
        """The pod network did something for a pod: it is a part of the pod's sandbox step."""
        memory = self.base.pods.memory(uid)
        if memory is not None and command in _NETWORK_STEPS:
            step, of = _NETWORK_STEPS[command]
            memory.timeline.mark(step, seconds, failed or "ok", of=of)

    def health(self) -> str:
        """Why the pod loop is not well, or ""."""
        if not self.pod_deps.observer.audited.is_set():
            return f"the container runtime has not been seen yet: {self.pod_deps.observer.last_error}"
        age = self.base.clock.monotonic() - self.pod_deps.observer.last_audit
        if age > _AUDIT_LATE:
            return f"the container runtime was last seen {age:.0f} s ago: {self.pod_deps.observer.last_error}"
        return ""

    async def start_server(self) -> None:
        """Listen on the kubelet's ports. Raises Invalid (certificates, a taken port)."""
        self.server = await start(
            ServerDeps(
                settings=self.base.settings.server,
                node=derive.served_node(self.base.settings, self.base.addresses.current),
                pods=self.base.pods,
                runtime=self.base.connections.cri,
                client=None if self.base.settings.standalone else self.base.connections.api,
                registry=self.base.metrics.registry,
                health=self.health,
                heartbeat=self.lease.problem,
                edges=server_edges(),
                explains=self._explainer(),
                images=self.eviction.images,
                stats=self.stats,
                probe_registry=self.base.metrics.probe_registry,
                translate_uid=self.static.mirrors.translate,
            )
        )

    def _explainer(self) -> Explainer:
        return Explainer(
            self.base.settings.node.name,
            self.base.pods,
            self.checkpoints.managers.detail,
            self.probes,
            self.pod_deps.containers.images,
            self.stats,
            lambda: self.keeper.runtime.problems,
            self.base.clock,
        )

    async def stop_work(self) -> None:
        """Stop the server and all workers; pods run on."""
        if self.server is not None:
            await self.server.close()
        await self.pod_workers.close(_PATIENCE)
        await self.pod_deps.containers.images.close()
        await self.pod_deps.status.manager.close()
        if not self.base.settings.standalone:
            await self.base.events.flush()

    async def close(self) -> None:
        """Close the connections."""
        await self.static.close()
        await self.volumes.close()
        await self.plugins.close()
        await self.probe_io.close()
        await self.base.connections.close()

    async def _watch_pods(self) -> None:
        # Running pods would be taken for new ones by a plan that has not seen the runtime.
        await self.pod_deps.observer.audited.wait()
        await self.pods_watch.run()

    async def _tell_synced(self) -> None:
        await self.pods_watch.synced.wait()
        self.api_pods.synced()
        await asyncio.Event().wait()
