"""Builds the service proxy out of its parts and starts its tasks (upstream cmd/kube-proxy/app/server.go)."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from nodelib.clock import Clock, SystemClock
from nodelib.daemons.program import run_daemon
from nodelib.daemons.sdnotify import notify_systemd
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.events import Events
from nodelib.kube.request_metrics import RequestMetrics
from nodelib.kube.skew import version_skew
from nodelib.netlink.conntrack import Conntrack
from nodelib.rate_limiter import RateLimiter, TokenBucket
from nodelib.shortage import raise_file_limit
from nodelib.tasks import Supervisor
from nodelib.traces.steps import Tracer
from proxy import conntrack_usage, modes, platform
from proxy.backends.base import Backend
from proxy.backends.quarantine import Quarantine
from proxy.config.access import find_access
from proxy.config.effective import document
from proxy.config.settings import ClientSettings, Settings, load_settings
from proxy.edge import nfacct, sysctl
from proxy.edge.local_addresses import local_addresses
from proxy.edge.metrics import Metrics
from proxy.edge.servers import ServiceHealthServers
from proxy.health import Health
from proxy.http_handlers import serve_health, serve_metrics
from proxy.model import NamespacedName, NodeFacts
from proxy.plan.context import CT_INVALID_COUNTER, LOCALHOST_COUNTER
from proxy.plan.limits import OF_MODE
from proxy.plan.node import parse_node
from proxy.plan.node_port_addresses import expand, networks, node_port_ips
from proxy.plan.pod_ranges import PodRanges
from proxy.plan.tracker import Tracker
from proxy.proxier import Periods, Proxier, Reporting
from proxy.tracing import SERVICE, SyncTracing
from proxy.watches import Watches

log = logging.getLogger(__name__)

# Thresholds of the garbage collector: CPython's own, and those used while everything is listed and planned. Hardly
# anything is garbage then, and half of the CPU time would go into looking for it.
_COLLECT, _COLLECT_AT_START = (700, 10, 10), (100_000, 20, 100)

DEEP_AUDIT = 5.0  # seconds: a change that somebody else made to our rules is undone within twice this time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the proxy and return its exit status.

    0: it was asked to stop; 1: it failed; 2: the command line or the configuration is wrong.
    """
    return run_daemon("proxy", argv, load_settings, _work, lambda settings: settings.logging)


def _work(settings: Settings) -> int:
    if settings.write_config_to:
        Path(settings.write_config_to).write_text(yaml.safe_dump(document(settings), sort_keys=False))
        return 0
    if settings.cleanup:
        return 0 if asyncio.run(modes.remove_other_modes("")) else 1
    asyncio.run(run(settings))
    return 0


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. The rules stay, so traffic continues without the proxy."""
    for notice in settings.notices:
        log.warning("%s", notice)
    gc.set_threshold(*_COLLECT_AT_START)
    access = find_access(settings.kubeconfig, settings.master)
    backends = await modes.backends(settings)
    if settings.init_only:
        await modes.initialize(settings, backends.values())
        return
    platform.set_sysctls(settings)
    platform.set_oom_score(settings.oom_score_adj)
    raise_file_limit()  # each Service with a health check has a port of its own, in userspace mode every Service
    async with Supervisor("proxy") as supervisor:
        supervisor.stop_on_signals()
        metrics = Metrics()
        client = KubeClient(
            access,
            user_agent="nodewright-proxy",
            limit=rate_limit(settings.requests),
            streaming_lists=settings.streaming_lists,
            measured=RequestMetrics(metrics.registry),
        )
        supervisor.on_stop("API connections", client.close)
        clock = SystemClock()
        tracer = _tracer(settings, supervisor, metrics, clock)
        proxy = _Proxy(settings, supervisor, client, metrics, backends, clock, tracer)
        await proxy.start()
        notify_systemd(supervisor, proxy.problem, clock)
        await supervisor.wait()


def _tracer(settings: Settings, supervisor: Supervisor, metrics: Metrics, clock: Clock) -> Tracer | None:
    if not settings.tracing.per_million:
        return None
    from nodelib.traces.daemon import start_tracing

    return start_tracing(settings.tracing, SERVICE, settings.node_name, supervisor, metrics.registry, clock)


def rate_limit(requests: ClientSettings) -> RateLimiter | None:
    if requests.qps <= 0:
        return None
    clock = SystemClock()
    return RateLimiter(TokenBucket(requests.qps, requests.burst, clock.monotonic), clock.sleep)


class _Proxy:
    """The parts of one running proxy and the connections between them."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        client: KubeClient,
        metrics: Metrics,
        backends: dict[Family, Backend],
        clock: Clock,
        tracer: Tracer | None,
    ) -> None:
        self._settings, self._tracer = settings, tracer
        self._supervisor = supervisor
        self._client, self._clock = client, clock
        self._node = NodeFacts(settings.node_name)
        self._pods = PodRanges(settings.local.cluster_cidrs)
        self._metrics = metrics
        self._health = Health(2 * settings.rules.sync_period, lambda: self._node)
        self._events = Events(client, settings.node_name, clock, "kube-proxy")
        self._proxiers = [self._proxier(family, one) for family, one in backends.items()]
        self._watches = Watches(
            client,
            settings.node_name,
            on_service=self._on_service,
            on_slice=self._on_slice,
            on_node=self._on_node,
            on_service_cidrs=self._on_service_cidrs if settings.mode == "nftables" else None,
        )
        self._wire_metrics()

    def problem(self) -> str:
        """Why systemd should restart this process, or ""."""
        return "" if self._health.healthy(self._clock.steady()) else "changes are waiting, and no sync succeeds"

    async def start(self) -> None:
        spawn = self._supervisor.spawn
        now = self._clock.steady()
        for proxier in self._proxiers:
            self._health.updated(proxier.family, now)
            spawn(f"sync-{proxier.family}", proxier.runner.run)
            spawn(f"audit-{proxier.family}", proxier.run_audit)
            spawn(f"leftovers-{proxier.family}", proxier.leftovers.run)
        for reflector in self._watches.all:
            spawn(f"watch-{reflector.name}", reflector.run)
        self._supervisor.once("first-sync", self._start_syncing)
        self._supervisor.once("version-skew", self._check_version_skew)
        spawn("conntrack-usage", lambda: conntrack_usage.watch(sysctl.read_int, self._clock))
        hard = self._settings.bind_hard_fail
        if self._settings.healthz is not None:
            serving = partial(serve_health, self._settings, self._health, self._metrics, self._clock)
            spawn("healthz", serving, critical=hard)
        if self._settings.metrics is not None:
            spawn("metrics", partial(serve_metrics, self._settings, self._metrics), critical=hard)

    async def _start_syncing(self) -> None:
        """Wait until everything has been listed: rules made from partial lists would cut Services off."""
        await self._watches.synced()
        log.info(
            "listed %d Services, %d EndpointSlices; Node %s %s",
            len(self._watches.services.store),
            len(self._watches.slices.store),
            self._settings.node_name,
            "found" if self._node.exists else "does not exist yet",
        )
        for proxier in self._proxiers:
            proxier.start()
        await self._record_node_event("Starting", "")
        for proxier in self._proxiers:
            await proxier.first_sync.wait()
        # The listed objects live as long as the process, so the collector need not scan them over and over.
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        # Only now: until the new rules are in place, the old ones serve.
        await modes.remove_other_modes(self._settings.mode)

    async def _check_version_skew(self) -> None:
        if found := await version_skew(self._client, self._clock):
            await self._record_node_event("VersionSkew", f"kube-proxy {found}.", warning=True)

    async def _record_node_event(self, reason: str, note: str, *, warning: bool = False) -> None:
        name, action = self._settings.node_name, "StartKubeProxy"
        await self._events.record("Node", "", name, reason=reason, action=action, note=note, warning=warning)

    def _proxier(self, family: Family, backend: Backend) -> Proxier:
        settings = self._settings
        servers = ServiceHealthServers(
            self._health_hosts(family),
            lambda: self._health.healthy(self._clock.steady()),
            self._health_check_failed,
        )
        self._supervisor.on_stop(f"health checks {family}", servers.close)
        traces = SyncTracing(self._tracer) if self._tracer is not None else None
        return Proxier(
            Tracker(family, settings.node_name, self._clock.now(), OF_MODE[settings.mode], self._pods),
            Quarantine(backend),
            Conntrack(family),
            Reporting(self._metrics, self._health, servers, traces),
            self._clock,
            Periods(settings.rules.min_sync_period, min(settings.rules.sync_period, DEEP_AUDIT)),
        )

    def _on_service(self, kind: str, obj: Json) -> None:
        self._metrics.service_changes.inc()
        for proxier in self._proxiers:
            proxier.on_service(kind, obj)

    def _on_slice(self, kind: str, obj: Json) -> None:
        self._metrics.endpoint_changes.inc()
        for proxier in self._proxiers:
            proxier.on_endpoint_slice(kind, obj)

    def _on_node(self, kind: str, obj: Json) -> None:
        node = parse_node(None if kind == "DELETED" else obj, self._settings.node_name)
        if node != self._node:
            self._node = node
            for proxier in self._proxiers:
                proxier.on_node(node)

    def _on_service_cidrs(self, cidrs: tuple[str, ...]) -> None:
        for proxier in self._proxiers:
            proxier.on_service_cidrs(cidrs)

    def _health_hosts(self, family: Family) -> tuple[str, ...]:
        anywhere = ("0.0.0.0",) if family is Family.IPV4 else ("::",)
        cidrs = networks(expand(self._settings.node_port_addresses, ()), family)
        if cidrs is None:
            return anywhere
        return node_port_ips(cidrs, local_addresses(), family, localhost=True) or anywhere

    def _health_check_failed(self, name: NamespacedName, message: str) -> None:
        async def record() -> None:
            await self._events.record(
                "Service",
                name.namespace,
                name.name,
                reason="FailedToStartServiceHealthcheck",
                action="Listen",
                note=f"node {self._settings.node_name}: {message}",
                warning=True,
            )

        self._supervisor.once(f"event-{name}", record)

    def _wire_metrics(self) -> None:
        proxiers = self._proxiers
        self._metrics.service_changes_pending.set_function(lambda: sum(p.pending_services for p in proxiers))
        self._metrics.endpoint_changes_pending.set_function(lambda: sum(p.pending_endpoints for p in proxiers))
        self._metrics.add_kernel_counter(
            "kubeproxy_iptables_ct_state_invalid_dropped_packets",
            "packets dropped by iptables to work around conntrack problems",
            lambda: nfacct.packets(CT_INVALID_COUNTER),
        )
        self._metrics.add_kernel_counter(
            "kubeproxy_iptables_localhost_nodeports_accepted_packets",
            "Number of packets accepted on nodeports of loopback interface",
            lambda: nfacct.packets(LOCALHOST_COUNTER),
        )
