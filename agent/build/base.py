"""Joins what every other part is made from: settings, clock, connections, and Observables shared between parts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from agent.build import credentials
from agent.build.exporter import build_exporter, traced_cri
from agent.build.no_api import NoApi
from agent.common.edge.host_resolver import HostResolver
from agent.common.metrics import Metrics
from agent.common.work.events import EventRecorder
from agent.common.work.handshakes import Handshakes
from agent.common.work.observable import Observable, Signal
from agent.node.edge.kernel_tunables import apply_tunables
from agent.node.edge.machine import Machine, addresses_towards, apply_limits, check_swap
from agent.node.model import NodePlace
from agent.pods.edge.pod_files import PodFiles
from agent.pods.work.registry import PodRegistry
from agent.runtime.edge.cri import Cri
from agent.runtime.model import CallLimits
from agent.runtime.work.observer import Observer
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.request_metrics import RequestMetrics
from nodelib.kube.turns import Turns
from nodelib.rate_limiter import RateLimiter, TokenBucket
from nodelib.traces.export import Exporter
from nodelib.version import KUBERNETES_VERSION

log = logging.getLogger(__name__)

USER_AGENT = "nodewright-agent"
_HEARTBEAT_TIMEOUT = 5.0  # seconds
_TURNS = 64, 24  # requests at a time for what pods name, or for statuses of pods, and of those for one namespace


@dataclass(slots=True)
class Connections:
    """The clients of the API server and the runtime. The Lease has one of its own, which no other request can delay.

    `unlimited`: for the Node and for Events, which kubeAPIQPS does not limit; the same as `api` where it is not set.
    `named`: for the objects that pods name, of which there may be any number; a few requests at a time. `statuses`:
    likewise, for the statuses and deletions of pods: whoever names the node in thousands of pods that it rejects would
    have as many requests under way, here and at the API server.
    """

    api: KubeClient
    unlimited: KubeClient
    named: KubeClient
    statuses: KubeClient
    heartbeat: KubeClient
    cri: Cri

    async def reconnect(self) -> None:
        """Connect to the API server again, with the current credentials."""
        for client in {self.api, self.unlimited, self.named, self.statuses, self.heartbeat}:
            await client.reconnect()

    async def close(self) -> None:
        for client in {self.api, self.unlimited, self.named, self.statuses, self.heartbeat}:
            await client.close()
        await self.cri.close()


class HostAddresses:
    """This node's addresses. They are refreshed with every status of the node."""

    def __init__(self, server: str, wanted: tuple[str, ...]) -> None:
        self._server, self._wanted = server, wanted
        self.current: tuple[str, ...] = ()

    async def refresh(self) -> tuple[str, ...]:
        """Find them again. Raises Permanent when there is none."""
        self.current = await addresses_towards(self._server, self._wanted)
        return self.current


@dataclass(frozen=True, slots=True)
class Base:
    """What every other part is made from.

    Parts inform each other through the last fields: `pods` lists the pods and wakes their workers, `own_node` is
    this node's Node as the API shows it, `pressures` the pressure conditions that hold, `shutting_down` says whether
    the machine is shutting down, `node_changed` asks for a new node status, and `nodes` are all Nodes, if watched.
    `traces`: None unless spans are exported.
    `host_resolver` resolves the host names that pods choose, within limits for each pod and for the whole node.
    `handshakes` are those of probes and hooks, which pods may make long.
    """

    settings: Settings
    clock: Clock
    certificates: credentials.NodeCertificates
    connections: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    machine: Machine
    pod_files: PodFiles
    observer: Observer
    pods: PodRegistry
    traces: Exporter | None
    own_node: Observable[Json | None]
    pressures: Observable[tuple[str, ...]] = field(default_factory=lambda: Observable(()))
    shutting_down: Observable[bool] = field(default_factory=lambda: Observable(False))
    node_changed: Signal = field(default_factory=Signal)
    nodes: Observable[list[NodePlace]] = field(default_factory=lambda: Observable([]))
    host_resolver: HostResolver = field(default_factory=HostResolver)
    handshakes: Handshakes = field(default_factory=Handshakes)


def build_base(settings: Settings, clock: Clock, found: credentials.Credentials) -> Base:
    """The clients are made, but nothing is requested yet."""
    access = found.access
    metrics = Metrics(settings.node.name, KUBERNETES_VERSION)
    exporter = build_exporter(settings, clock, metrics)
    made = connections(settings, clock, access, metrics, exporter)
    own_node: Observable[Json | None] = Observable(None)
    paths = settings.paths
    files = PodFiles(paths.pod_logs_dir, paths.container_logs_dir, paths.root_dir)
    observer = Observer(made.cri, files, clock, metrics)
    return Base(
        settings=settings,
        clock=clock,
        certificates=credentials.build_certificates(
            found, settings, clock, made.api, lambda: own_node.now, made.reconnect
        ),
        connections=made,
        metrics=metrics,
        events=EventRecorder(
            made.unlimited,
            settings.node.name,
            clock,
            sent=not settings.standalone,
            qps=settings.events.qps,
            burst=settings.events.burst,
        ),
        addresses=HostAddresses(access.server, settings.node.ips),
        machine=Machine(settings.paths.root_dir, settings.cgroups.pods.root),
        pod_files=files,
        observer=observer,
        pods=PodRegistry(observer.seen),
        traces=exporter,
        own_node=own_node,
    )


def connections(
    settings: Settings, clock: Clock, access: ClusterAccess, metrics: Metrics, exporter: Exporter | None
) -> Connections:
    """The clients, of which none connects before it is used."""
    wanted = settings.runtime
    cri = Cri(
        wanted.endpoint,
        wanted.image_endpoint,
        operation=metrics.runtime_operation,
        limits=CallLimits(wanted.request_timeout),
        traced=traced_cri(exporter),
    )
    if settings.standalone:
        return Connections(NoApi(), NoApi(), NoApi(), NoApi(), NoApi(), cri)
    measured = RequestMetrics(metrics.registry)
    heartbeat = KubeClient(access, user_agent=USER_AGENT, timeout=_HEARTBEAT_TIMEOUT, measured=measured)
    rate, limit = settings.api.limit, None
    if rate is not None:
        limit = RateLimiter(TokenBucket(rate.qps, rate.burst, clock.monotonic), clock.sleep)

    def client(limit: RateLimiter | None, turns: Turns | None = None) -> KubeClient:
        return KubeClient(
            access,
            user_agent=USER_AGENT,
            limit=limit,
            turns=turns,
            streaming_lists=settings.api.streaming_lists,
            measured=measured,
        )

    unlimited = client(None)
    limited = client(limit) if limit is not None else unlimited
    named, statuses = (client(limit, Turns(*_TURNS)) for _ in range(2))
    return Connections(limited, unlimited, named, statuses, heartbeat, cri)


def apply_process_limits(settings: Settings) -> None:
    """Set the limits of this process, and the kernel's tunables.

    Raises NodewrightError for swap with failSwapOn, and for tunables that differ with protectKernelDefaults.
    """
    limits = settings.process
    check_swap(limits.fail_swap_on)
    problems = apply_tunables(protect=limits.protect_kernel_defaults)
    problems += apply_limits(max_open_files=limits.max_open_files, oom_score_adj=limits.oom_score_adj)
    for problem in problems:
        log.warning("%s", problem)


async def find_first_address(addresses: HostAddresses) -> None:
    """Find an address before the first pod needs it for its status and hosts file.

    If there is none, the agent starts anyway.
    """
    try:
        await addresses.refresh()
    except NodewrightError as error:
        log.warning("%s", error)
