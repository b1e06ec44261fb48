"""What every other part stands on, made first: settings, time, connections, and who is told what happens."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agent.build import credentials
from agent.build.core import Connections, HostAddresses
from agent.build.metrics import Metrics
from agent.common.edge.no_api import NoApi
from agent.common.work.events import EventRecorder
from agent.common.work.observable import Observable
from agent.node.edge.machine import Machine, apply_limits, check_swap
from agent.runtime.edge.cri import Cri
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.client import KubeClient
from nodelib.version import KUBERNETES_VERSION

log = logging.getLogger(__name__)

USER_AGENT = "nodewright-agent"
_HEARTBEAT_LIMIT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Base:
    """What every other part stands on: settings, time, connections, and who is told what happens."""

    settings: Settings
    clock: Clock
    credentials: credentials.Credentials
    made: Connections
    metrics: Metrics
    events: EventRecorder
    addresses: HostAddresses
    machine: Machine
    pressures: Observable[tuple[str, ...]]
    going: Observable[bool]


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
        made=made,
        metrics=metrics,
        events=EventRecorder(made.api, settings.node.name, clock, sent=not settings.standalone),
        addresses=HostAddresses(access.server, settings.node.ips),
        machine=Machine(settings.paths.root_dir, settings.cgroups.pods.root),
        pressures=Observable(()),
        going=Observable(False),
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
