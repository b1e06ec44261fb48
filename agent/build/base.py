"""What every other part is made from: settings, time, connections, and inboxes by which one part informs others."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from agent.build import credentials
from agent.common.edge.no_api import NoApi
from agent.common.metrics import Metrics
from agent.common.work.events import EventRecorder
from agent.common.work.observable import Observable, Signal
from agent.node.edge.machine import Machine, addresses_towards, apply_limits, check_swap
from agent.pods.work.registry import PodRegistry
from agent.runtime.edge.cri import Cri
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.version import KUBERNETES_VERSION

log = logging.getLogger(__name__)

USER_AGENT = "nodewright-agent"
_HEARTBEAT_LIMIT = 5.0  # seconds


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


class HostAddresses:
    """This node's addresses, asked for again whenever the node's status is made."""

    def __init__(self, server: str, wanted: tuple[str, ...]) -> None:
        self._server, self._wanted = server, wanted
        self.current: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...]:
        """Raises Permanent when there is none."""
        self.current = await addresses_towards(self._server, self._wanted)
        return self.current


@dataclass(frozen=True, slots=True)
class Base:
    """What every other part is made from.

    The inboxes: `pods` (which pods there are; wake one), `own_node` (the Node as the API shows it), `pressures` (the
    pressure conditions that hold), `shutting_down` (the machine is), `node_changed` (make the node's status again).
    """

    settings: Settings
    clock: Clock
    credentials: credentials.Credentials
    connections: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    machine: Machine
    pods: PodRegistry = field(default_factory=PodRegistry)
    own_node: Observable[Json | None] = field(default_factory=lambda: Observable(None))
    pressures: Observable[tuple[str, ...]] = field(default_factory=lambda: Observable(()))
    shutting_down: Observable[bool] = field(default_factory=lambda: Observable(False))
    node_changed: Signal = field(default_factory=Signal)


def build_base(settings: Settings, clock: Clock, found: credentials.Credentials) -> Base:
    """Connections are made, nothing is asked yet."""
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
    return Base(
        settings=settings,
        clock=clock,
        credentials=found,
        connections=made,
        metrics=metrics,
        events=EventRecorder(made.api, settings.node.name, clock, sent=not settings.standalone),
        addresses=HostAddresses(access.server, settings.node.ips),
        machine=Machine(settings.paths.root_dir, settings.cgroups.pods.root),
    )


def own_limits(settings: Settings) -> None:
    """Those of this process. Raises NodewrightError for swap where failSwapOn forbids it."""
    check_swap(settings.process.fail_swap_on)
    limits = settings.process
    for undone in apply_limits(max_open_files=limits.max_open_files, oom_score_adj=limits.oom_score_adj):
        log.warning("%s", undone)


async def first_address(addresses: HostAddresses) -> None:
    """Before the first pod: its status and its hosts file have the address. None is no reason to wait."""
    try:
        await addresses.look()
    except NodewrightError as error:
        log.warning("%s", error)
