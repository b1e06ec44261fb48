"""What the server needs: its settings, facts about the node, and the parts of the agent that answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from agent.common.ports import PodView
from agent.common.work.gate import Gate
from agent.runtime.ports import RuntimeService
from agent.server.model import ServerSettings
from agent.server.ports import (
    EvictionReports,
    Explains,
    ImageReports,
    Journal,
    Listeners,
    LogReader,
    ReviewApi,
    SystemLogFiles,
    Tls,
    Upgrades,
)
from agent.stats.work.provider import StatsProvider


@dataclass(frozen=True, slots=True)
class ServedNode:
    """Facts about the node.

    `names` and `addresses` go into the self-signed certificate that is kept in `cert_dir` when none is configured.
    `serving_pair` is the file that will hold a certificate signed by the cluster, with its key.
    `configz` is the whole KubeletConfiguration (Settings.effective), `flags` the command line (Settings.flags).
    """

    name: str
    cert_dir: str = "/var/lib/kubelet/pki"
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    configz: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    checkpoint_dir: str = "/var/lib/kubelet/checkpoints"
    system_log_dir: str = "/var/log"
    serving_pair: str = ""


@dataclass(frozen=True, slots=True)
class ServerEdges:
    """How the server reaches the machine. It closes `listeners` and `logs` when it stops."""

    tls: Tls
    upgrades: Upgrades
    logs: LogReader
    system_logs: SystemLogFiles
    journal: Journal
    listeners: Listeners


@dataclass(frozen=True, slots=True)
class ServerDeps:
    """The parts of the agent that the endpoints ask.

    `health()` is "" or what is wrong with the pod loop, `heartbeat()` the same for the Lease.
    `client` is None in a standalone agent: without webhook reviews only certificates authenticate.
    `translate_uid` maps the UID of a mirror pod to that of its static pod. `commands`: how many commands begin at once,
    as each is some processes of the runtime.
    """

    settings: ServerSettings
    node: ServedNode
    pods: PodView
    runtime: RuntimeService
    client: ReviewApi | None
    registry: CollectorRegistry
    health: Callable[[], str]
    edges: ServerEdges
    commands: Gate = field(kw_only=True)
    stats: StatsProvider | None = None
    probe_registry: CollectorRegistry | None = None
    explains: Explains | None = None
    images: ImageReports | None = None
    eviction: EvictionReports | None = None
    heartbeat: Callable[[], str] = lambda: ""
    translate_uid: Callable[[str], str] = lambda uid: uid
