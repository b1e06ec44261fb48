"""Joins the node's credentials: TLS bootstrap when they are missing, rotation of the client and serving certificates.

certificates/plan.py decides when to rotate; certificates/work/ requests certificates, waits for them and stores them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from agent.certificates import plan
from agent.certificates.edge.certificate_store import (
    CertificateStore,
    KeyFile,
    make_request,
    public_key,
    read_leaf,
)
from agent.certificates.edge.metrics import CertificateCollector, CertificateMetrics
from agent.certificates.edge.signing_requests import SigningRequests
from agent.certificates.model import Pair
from agent.certificates.plan import Signer
from agent.certificates.work.bootstrap import BootstrapEdges, first_certificate
from agent.certificates.work.rotation import CertificateManager, ManagedCertificate
from agent.node.model import NodeCondition
from agent.settings import Settings
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess, load_kubeconfig, save_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.tasks import Work

log = logging.getLogger(__name__)

CLIENT, SERVER = "kubelet-client", "kubelet-server"
CONDITION = "ServingCertificate"


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server. `bootstrap` is the work of a TLS bootstrap that goes on while the agent runs."""

    access: ClusterAccess
    rotate_at_once: bool = False
    bootstrap: Work | None = None


@dataclass(frozen=True, slots=True)
class NodeCertificates:
    """The certificates of this node that are rotated, by name (CLIENT, SERVER)."""

    keepers: Mapping[str, CertificateManager] = field(default_factory=dict)
    bootstrap: Work | None = None

    def tasks(self) -> dict[str, Work]:
        """Long-running work by name."""
        found: dict[str, Work] = {name: keeper.run for name, keeper in self.keepers.items()}
        if self.bootstrap is not None and CLIENT in found:
            first, then = self.bootstrap, found[CLIENT]

            async def bootstrapped() -> None:
                await first()
                await then()

            found[CLIENT] = bootstrapped
        return found

    def metrics(self, name: str, clock: Clock) -> CertificateMetrics:
        """Metrics of one certificate; `name` is CLIENT or SERVER."""
        keeper = self.keepers.get(name)
        if keeper is None:
            return CertificateMetrics()
        left = math.trunc(keeper.pair.leaf.not_after - clock.now()) if keeper.pair else math.inf
        return CertificateMetrics(left, keeper.failures)

    def collector(self, clock: Clock) -> CertificateCollector:
        """The collector for the registry of /metrics."""
        return CertificateCollector(lambda: self.metrics(CLIENT, clock), lambda: self.metrics(SERVER, clock))

    def conditions(self) -> list[NodeCondition]:
        """The node condition of the serving certificate, when the cluster signs it."""
        keeper = self.keepers.get(SERVER)
        if keeper is None:
            return []
        if keeper.waiting is not None:
            reason = "WaitingForApproval" if keeper.waiting.needs_approval else "NotIssued"
            return [NodeCondition(CONDITION, "False", reason, keeper.waiting.message)]
        if keeper.pair is None:
            return [NodeCondition(CONDITION, "False", "NotIssued", "it has not been requested yet")]
        return [NodeCondition(CONDITION, "True", "Issued", "kubelet serves with a certificate of the cluster")]


async def find_credentials(
    settings: Settings, clock: Clock, *, user_agent: str, in_background: bool = False
) -> Credentials:
    """The access of --kubeconfig, created by a TLS bootstrap if necessary.

    `in_background`: with rotation on, tasks() does the bootstrap while the agent runs. On a joining control plane the
    API server is a static pod of this very node (kubeadm's ControlPlaneKubeletLocalMode), so the agent must run first.

    Raises Permanent when the bootstrap credentials are refused or the clocks disagree, Invalid for unreadable files.
    """
    api = settings.api
    if settings.standalone:
        return Credentials(ClusterAccess(""))
    store = CertificateStore(settings.paths.cert_dir, CLIENT)
    if api.bootstrap:
        problem = await asyncio.to_thread(unusable, api.kubeconfig, clock.now())
        if problem:
            log.info("bootstrap: %s", problem)
            if api.rotate and in_background:
                return _in_background(settings, store, clock, user_agent)
            await _bootstrap(settings, store, clock, user_agent)
    access = load_kubeconfig(api.kubeconfig)
    if not api.rotate:
        return Credentials(access)
    return await asyncio.to_thread(_rotated, access, store, clock.now())


def build_certificates(
    credentials: Credentials,
    settings: Settings,
    clock: Clock,
    client: KubeClient,
    own_node: Callable[[], Json | None],
    reconnect: Callable[[], Awaitable[None]],
) -> NodeCertificates:
    """The certificates that the settings want rotated. `own_node()` is the Node as the API shows it."""
    requests, folder, node = SigningRequests(client), settings.paths.cert_dir, settings.node.name

    async def renewed(_: Pair) -> None:
        await reconnect()

    async def served(_: Pair) -> None:
        """Nothing to do: the server checks its files when a client connects."""

    wanted: dict[str, ManagedCertificate] = {}
    if settings.api.rotate and credentials.access.cert_file:
        wanted[CLIENT] = ManagedCertificate(
            Signer.CLIENT,
            CertificateStore(folder, CLIENT),
            lambda: plan.client_template(node),
            renewed,
            at_once=credentials.rotate_at_once,
        )
    if settings.server.tls_bootstrap:
        wanted[SERVER] = ManagedCertificate(
            Signer.SERVING,
            CertificateStore(folder, SERVER),
            lambda: plan.serving_template(node, _addresses(own_node())),
            served,
        )
    keepers = {
        name: CertificateManager(one, requests, make_request, clock, chance=random.random())
        for name, one in wanted.items()
    }
    return NodeCertificates(keepers, credentials.bootstrap)


def _addresses(node: Json | None) -> list[dict[str, str]]:
    return list(((node or {}).get("status") or {}).get("addresses") or [])


def _in_background(settings: Settings, store: CertificateStore, clock: Clock, user_agent: str) -> Credentials:
    token = load_kubeconfig(settings.api.bootstrap)

    async def work() -> None:
        if await asyncio.to_thread(unusable, settings.api.kubeconfig, clock.now()):
            await _bootstrap(settings, store, clock, user_agent)

    return Credentials(_own_access(token, store.path), bootstrap=work)


def _own_access(token: ClusterAccess, pem: str) -> ClusterAccess:
    own = replace(token, token=None, token_file=None, cert_data=None, key_data=None)
    return replace(own, cert_file=pem, key_file=pem)


async def _bootstrap(settings: Settings, store: CertificateStore, clock: Clock, user_agent: str) -> None:
    api = settings.api
    token = load_kubeconfig(api.bootstrap)
    client = KubeClient(token, user_agent=user_agent)
    try:
        edges = BootstrapEdges(
            SigningRequests(client),
            store,
            KeyFile(os.path.join(settings.paths.cert_dir, f"{CLIENT}.key.tmp")),
            make_request,
            public_key,
            clock,
        )
        pair = await first_certificate(settings.node.name, edges)
    finally:
        await client.close()
    await asyncio.to_thread(save_kubeconfig, api.kubeconfig, _own_access(token, pair.path))


def unusable(path: str, now: float) -> str:
    """Why the kubeconfig cannot be used, or ""."""
    if not os.path.exists(path):
        return f"{path} does not exist yet"
    try:
        access = load_kubeconfig(path)
        pem = access.cert_data or _read(access.cert_file)
        if not pem:
            return "" if access.token or access.token_file else f"{path} holds no credentials"
        ended = now - read_leaf(pem).not_after
    except (NodewrightError, OSError, ValueError) as error:
        return f"{path}: {error}"
    return f"the client certificate of {path} has expired {ended:.0f} s ago" if ended > 0 else ""


def _rotated(access: ClusterAccess, store: CertificateStore, now: float) -> Credentials:
    """The access with the rotated certificate. One that only the kubeconfig has is put into the store first.

    One that begins later than the stored one counts as such, and not only once that has expired (as upstream): whoever
    wrote it into the kubeconfig gave this node a new one, perhaps of another authority.
    """
    cert, key = access.cert_data or _read(access.cert_file), access.key_data or _read(access.key_file)
    if not cert or not key:
        return Credentials(access)
    at_once = False
    pair = _stored(store)
    if pair is None or plan.expired(pair.leaf, now) or read_leaf(cert).not_before > pair.leaf.not_before:
        store.update(cert, key)
        # `kubeadm init` puts the first node's certificate into its kubeconfig and waits for the rotated one.
        at_once = access.cert_data is not None
    path = store.path
    rotated = replace(access, cert_data=None, key_data=None, cert_file=path, key_file=path)
    return Credentials(rotated, rotate_at_once=at_once)


def _stored(store: CertificateStore) -> Pair | None:
    try:
        return store.current()
    except Invalid as error:
        log.warning("%s", error)
        return None


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()
