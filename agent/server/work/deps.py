"""What the server is made of: settings as parsed, who the node is, parts from the composition root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from agent.common.ports import PodView
from agent.runtime.model import RuntimeService
from agent.server.model import ServerSettings
from agent.server.ports import Explains, ImageReports, LogReader, Tls, Upgrades
from agent.stats.work import StatsProvider
from nodelib.kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class ServedNode:
    """The node that is served.

    `names` and `addresses` go into the self-signed certificate that is kept in `cert_dir` when
    none is configured; `serving_pair` names the file that the cluster's signer will fill;
    `configz` is the whole KubeletConfiguration (Settings.effective),
    `flags` the command line (Settings.flags).
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
    """What the server reaches the machine with; it closes `logs` when it ends."""

    tls: Tls
    upgrades: Upgrades
    logs: LogReader


@dataclass(frozen=True, slots=True)
class ServerDeps:
    """The parts that answer. `health()`: "" or why the pod loop is not well, `heartbeat()` the same of the Lease.

    `client` None (standalone agent): no webhook reviews, so only certificates authenticate.
    `translate_uid` maps a mirror pod's UID to its static pod's.
    """

    settings: ServerSettings
    node: ServedNode
    pods: PodView
    runtime: RuntimeService
    client: KubeClient | None
    registry: CollectorRegistry
    health: Callable[[], str]
    edges: ServerEdges
    stats: StatsProvider | None = None
    probe_registry: CollectorRegistry | None = None
    explains: Explains | None = None
    images: ImageReports | None = None
    heartbeat: Callable[[], str] = lambda: ""
    translate_uid: Callable[[str], str] = lambda uid: uid
