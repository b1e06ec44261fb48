"""Joins the parts into one agent: its long-lived tasks, its HTTPS server, and the order in which all of it ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from agent.build import derive
from agent.build.base import Base
from agent.build.checkpoints import Checkpoints
from agent.build.eviction import BuiltEviction
from agent.build.plugins import BuiltPlugins
from agent.build.pod_sources import PodSourceRouter
from agent.build.server import server_edges
from agent.build.static import StaticParts
from agent.build.volumes import BuiltVolumes
from agent.common.model.errors import CriError
from agent.common.work.gate import Gate
from agent.explain.work import Explainer
from agent.logs.work import LogRotation
from agent.node.work.lease import LeaseController
from agent.node.work.node import NodeManager
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.connections import LimitedConnections
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_workers import PodWorkers
from agent.pods_api.edge.server import PodsApiServer
from agent.probes.edge import ProbeIo
from agent.probes.work import ProbeManager
from agent.resources.work.node_allocatable import NodeAllocatable
from agent.resources.work.system_cgroups import SystemCgroups
from agent.server.work import KubeletServer, ServerDeps, start
from agent.stats.work.provider import StatsProvider
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib.kube.reflector import Reflector
from nodelib.tasks import Work, both

_NETWORK_STEPS = {
    "ADD": (Activity(ActivityKind.NETWORK), Activity(ActivityKind.SANDBOX)),
    "DEL": (Activity(ActivityKind.REMOVE_NETWORK), Activity(ActivityKind.STOP_SANDBOX)),
}
_STOP_TIMEOUT = 3.0  # seconds for the container starts under way; supervisors kill the agent after five
_FLUSH_LIMIT = 1.0  # seconds for the spans that wait, which are not worth more
_RELIST_THRESHOLD = 180.0  # seconds, as upstream's PLEG (relistThreshold)


@dataclass(slots=True)
class Core:
    """The agent. Run tasks() concurrently, then call start_server(); call stop_work() and then close() at the end."""

    base: Base
    keeper: NodeManager
    lease: LeaseController
    pod_deps: PodDeps
    pod_workers: PodWorkers
    checkpoints: Checkpoints
    volumes: BuiltVolumes
    expander: VolumeExpander
    plugins: BuiltPlugins
    probes: ProbeManager
    probe_io: ProbeIo
    commands: Gate
    stats: StatsProvider
    allocatable: NodeAllocatable
    system_cgroups: SystemCgroups
    eviction: BuiltEviction
    shutdown: dict[str, Work]
    firewall: dict[str, Work]
    rotation: LogRotation
    api_pods: PodSourceRouter
    pods_watch: Reflector
    static: StaticParts
    pods_api: PodsApiServer | None
    limited_connections: LimitedConnections
    server: KubeletServer | None = field(default=None)

    def tasks(self) -> dict[str, Work]:
        """Name -> long-lived work."""
        return {**self._local_tasks(), **({} if self.base.settings.standalone else self._cluster_tasks())}

    def _local_tasks(self) -> dict[str, Work]:
        """The tasks that a standalone agent has, too."""
        observer = self.pod_deps.observer
        return {
            "runtime-audit": observer.run_audits,
            "runtime-events": observer.run_events,
            "runtime-hints": observer.run_hints,
            "runtime-starts": self.base.connections.cri.keep_starts,
            "probes": self.probes.run,
            "pods-sweep": self.pod_workers.run_sweeps,
            "pods-resizes": self.pod_workers.resizes.run,
            **self.checkpoints.tasks(),
            "log-rotation": self.rotation.run,
            "node-allocatable": self.allocatable.run,
            **self.system_cgroups.tasks(),
            **self.eviction.tasks(),
            **dict(self.plugins.tasks()),
            **({"pods-api": self.pods_api.run} if self.pods_api is not None else {}),
            **self.static.tasks(observer.audited),
            **self.shutdown,
            **self.firewall,
            **self.keeper.tasks(),
            **({} if self.base.traces is None else {"traces": self.base.traces.run}),
        }

    def _cluster_tasks(self) -> dict[str, Work]:
        """The tasks that need an API server."""
        return {
            "events": self.base.events.run,
            "pods-watch": self._watch_pods,
            "pods-synced": self._report_synced,
            "mirror-pods": self.static.keep_mirrors,
            "lease": self.lease.run,
            **dict(self.volumes.tasks()),
            "volume-expansion": self.expander.run,
            **self.base.certificates.tasks(),
        }

    async def live_sandboxes(self) -> frozenset[str] | None:
        """IDs of all sandboxes, ready or not; None when the runtime does not answer."""
        try:
            return frozenset(one.id for one in await self.base.connections.cri.list_sandboxes())
        except CriError:
            return None

    def on_network_call(self, uid: str, command: str, seconds: float, failed: str) -> None:
        """Add a CNI call to the timeline of its pod, as a part of the sandbox step."""
        memory = self.base.pods.memory(uid)
        if memory is not None and command in _NETWORK_STEPS:
            step, of = _NETWORK_STEPS[command]
            memory.timeline.mark(step, seconds, failed or "ok", of=of)

    def network_span(self, uid: str) -> str:
        """The `traceparent` of the sandbox step that is under way for a pod; "" if it is not traced."""
        memory = self.base.pods.memory(uid) if self.base.traces is not None else None
        span = None if memory is None else memory.timeline.span_of(Activity(ActivityKind.SANDBOX))
        return "" if span is None else span.traceparent

    def health(self) -> str:
        """Why the pod loop is unhealthy, or "" (as upstream's PLEG check)."""
        observer = self.pod_deps.observer
        if not observer.audited.is_set():
            return f"the container runtime has not answered yet: {observer.last_error}"
        age = self.base.clock.monotonic() - observer.last_audit
        if age > _RELIST_THRESHOLD:
            return f"the container runtime last answered {age:.0f} s ago: {observer.last_error}"
        return ""

    async def start_server(self) -> None:
        """Listen on the kubelet's ports. Raises Invalid for bad certificates and for a port that is in use."""
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
                eviction=self.eviction.evictor,
                stats=self.stats,
                probe_registry=self.base.metrics.probe_registry,
                translate_uid=self.static.mirrors.translate,
                commands=self.commands,
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
            self.limited_connections.of,
            self.base.clock,
        )

    async def stop_work(self) -> None:
        """Stop the server and what works on the pods; neither waits for the other. The pods keep running."""
        await both(self.server.close() if self.server is not None else asyncio.sleep(0), self.stop_pods())

    async def stop_pods(self) -> None:
        """Stop probes and the pods' workers, and then what these use."""
        self.probes.stop()
        await self.pod_workers.close(_STOP_TIMEOUT)
        await self.pod_deps.containers.images.close()
        await self.pod_deps.status.manager.close()
        if not self.base.settings.standalone:
            await self.base.events.flush()

    async def close(self) -> None:
        """After stop_work(): close what reaches outside the process, the connections last."""
        await self.static.close()
        await self.volumes.close()
        await self.plugins.close()
        await self.probe_io.close()
        if self.base.traces is not None:
            await self.base.traces.close(_FLUSH_LIMIT)
        await self.base.connections.close()

    async def _watch_pods(self) -> None:
        # Before the first relist, a plan would take running pods for new ones.
        await self.pod_deps.observer.audited.wait()
        await self.pods_watch.run()

    async def _report_synced(self) -> None:
        await self.pods_watch.synced.wait()
        self.api_pods.synced()
        await asyncio.Event().wait()
