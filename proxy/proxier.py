"""One address family of the proxy: takes changes, runs syncs, and audits the rules in the kernel.

Upstream's counterpart is the Proxier of each mode, e.g. pkg/proxy/iptables/proxier.go. It is level-triggered: a sync
takes whatever changed since the last one. After a failure, or when somebody else changed the rules, the next sync
writes everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.runner import BoundedFrequencyRunner
from nodelib.traces.steps import NOT_TRACED, OpenSpan
from proxy.backends.base import Backend
from proxy.edge.metrics import Metrics
from proxy.edge.servers import ServiceHealthServers
from proxy.health import Health
from proxy.leftovers import Flows, Leftovers
from proxy.model import NamespacedName, NodeFacts, Problem
from proxy.plan.problems import limited_each
from proxy.plan.service_health import health_check_ports, local_ready
from proxy.plan.tracker import Changes, Tracker
from proxy.tracing import SyncTracing, describe, tell_programmed

log = logging.getLogger(__name__)

FULL_SYNC_PERIOD = 3600.0  # seconds, as upstream
RETRY = 2.0  # seconds after a sync that failed
# Syncs of 0.1 s take a tenth of the time at most: under a steady stream of changes they are batched.
REST_FACTOR = 9.0
AUDIT = 2.0  # seconds between two audits
_PATIENCE = 5  # audits in a row that syncs may make useless
_SHOWN = 5  # differences in one log line


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where a sync's outcome is reported: metrics, /healthz, the health check ports of Services, and spans."""

    metrics: Metrics
    health: Health
    servers: ServiceHealthServers
    traces: SyncTracing | None = None


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds: `min_sync` between two syncs at least, `deep_audit` between two audits of all rules."""

    min_sync: float
    deep_audit: float


class Proxier:
    """Owns the tracker and the backend of one family. Nothing is written before `start()`."""

    def __init__(
        self, tracker: Tracker, backend: Backend, flows: Flows, reporting: Reporting, clock: Clock, periods: Periods
    ) -> None:
        self.family: Family = tracker.family
        self._tracker = tracker
        self._backend = backend
        self._metrics, self._health, self._servers = reporting.metrics, reporting.health, reporting.servers
        self._traces = reporting.traces
        self._clock = clock
        self._deep_period = periods.deep_audit
        self._started = False
        self._health_ports: dict[NamespacedName, int] = {}
        self._full = True
        self._last_full = clock.monotonic()
        self._lock = asyncio.Lock()
        self._syncs = 0
        self._unread: Counter[bool] = Counter()  # audits in a row that syncs made useless: those of all rules, others
        self.leftovers = Leftovers(self.family, backend, flows, reporting.metrics, self._lock, clock)
        self.first_sync = asyncio.Event()
        self.runner = BoundedFrequencyRunner(
            f"sync {self.family}",
            self.sync,
            min_interval=periods.min_sync,
            retry_interval=RETRY,
            max_interval=FULL_SYNC_PERIOD,
            clock=clock,
            rest_factor=REST_FACTOR,
        )

    @property
    def pending_services(self) -> int:
        """Services that changed since the last sync."""
        return self._tracker.pending_services

    @property
    def pending_endpoints(self) -> int:
        """Services whose EndpointSlices changed since the last sync."""
        return self._tracker.pending_endpoints

    def start(self) -> None:
        """Call it once Services, EndpointSlices and the Node have been listed: from now on rules are written."""
        self._started = True
        self._poke()

    def on_service(self, kind: str, obj: Json) -> None:
        self._report(self._tracker.service(obj, gone=kind == "DELETED"))
        self._poke_if_pending()

    def on_endpoint_slice(self, kind: str, obj: Json) -> None:
        self._report(self._tracker.endpoint_slice(obj, gone=kind == "DELETED"))
        self._poke_if_pending()

    def on_node(self, node: NodeFacts) -> None:
        if self._backend.node_changed(node):
            self.force("the Node changed")
        if node.ips:  # otherwise those that it had
            self._tracker.node(node.ips)
            self._poke_if_pending()

    def on_service_cidrs(self, cidrs: tuple[str, ...]) -> None:
        if self._backend.service_cidrs_changed(cidrs):
            self.force("the ranges of cluster IPs changed")

    def force(self, why: str) -> None:
        """Ask for a full sync soon. `why` is for the log."""
        self._full = True
        if self._started:
            log.info("%s: full sync: %s", self.family, why)
            self._poke()

    async def sync(self) -> None:
        """One sync. Raises what the backend raised; the next one is a full sync then."""
        if not self._started:
            return
        if not self._backend.ready:
            log.warning("%s: no rules are written before the Node has a pod CIDR (detectLocalMode)", self.family)
            return
        async with self._lock:
            if self._clock.monotonic() - self._last_full >= FULL_SYNC_PERIOD:
                self._full = True
            if self._full or self._tracker.pending:
                with self._traces.begin() if self._traces is not None else NOT_TRACED as span:
                    await self._sync(span)
            else:
                self._health.updated(self.family, self._clock.steady())

    async def run_audit(self) -> None:
        """Until cancelled: notice within seconds when somebody else flushed or changed our rules.

        Where the kernel counts commits to the ruleset, the backends read nothing as long as nobody commits.
        """
        next_deep, pause = self._clock.monotonic() + self._deep_period, AUDIT
        while True:
            await self._clock.sleep(pause)
            started = self._clock.monotonic()
            deep = started >= next_deep
            await self.audit(deep=deep)
            # Reading a large table takes long, and so may starting a process for each table: spend at most a tenth of
            # the time on it.
            finished = self._clock.monotonic()
            rest = REST_FACTOR * (finished - started)
            if deep and not self._unread[True]:
                next_deep, pause = finished + max(self._deep_period, rest), AUDIT
            else:
                pause = max(AUDIT, rest)

    async def audit(self, *, deep: bool) -> None:
        """One audit; a difference forces a full sync."""
        if not self._started or self._full:
            return
        try:
            found = await self._differences(deep)
        except NodewrightError as error:
            log.warning("%s: the rules could not be read: %s", self.family, error)
            return
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            self.force(f"somebody else changed our rules: {'; '.join(found[:_SHOWN])}{more}")

    async def _differences(self, deep: bool) -> list[str]:
        """What somebody else changed. Reading a large table takes many seconds, and changes shall not wait for it,
        unless they come so fast that nothing is ever read. To look whether there are rules is quick, and says nothing
        of whether all of them can be read between two changes."""
        if self._unread[deep] >= _PATIENCE:
            async with self._lock:
                self._unread[deep] = 0
                return await self._backend.audit(deep=deep)
        async with self._lock:
            before = self._syncs
        found = await self._backend.audit(deep=deep)
        if before != self._syncs:  # what was read may be of other rules
            self._unread[deep] += 1
            return []
        self._unread[deep] = 0
        return found

    async def _sync(self, span: OpenSpan | None) -> None:
        self._syncs += 1
        endpoints = self._tracker.pending_endpoints
        full, started = self._full, self._clock.monotonic()
        changes = self._tracker.take(some=not full)
        if span is not None:
            describe(span, changes, full=full, endpoints=endpoints, mode=self._backend.mode)
        self._report(changes.problems)
        # Set again by whoever asks for a full sync while this one runs.
        self._full = False
        try:
            report = await self._backend.sync(changes.desired, None if full else changes.ports)
        except BaseException:
            self._full = True
            self._metrics.failed(self.family, self._backend.mode, full=full)
            raise
        finished, now = self._clock.monotonic(), self._clock.now()
        if report.full:
            self._last_full = finished
        self._metrics.synced(self.family, report, finished - started, now)
        self._health.updated(self.family, self._clock.steady())
        self.first_sync.set()
        self._report(report.problems)
        log.debug("%s: synced %d ports in %.3f s", self.family, len(changes.ports), finished - started)
        if span is not None:
            tell_programmed(span, changes, now)
        await self._after_sync(changes, now, full)
        if self._tracker.pending or self._full:
            self._poke()

    async def _after_sync(self, changes: Changes, now: float, full: bool) -> None:
        for time in changes.trigger_times:
            self._metrics.programming.labels(self.family.value).observe(max(0.0, now - time))
        await self._serve_health(changes, full)
        udp = (changes.udp or full) and any(name.protocol == "UDP" for name in changes.desired.ports)
        self.leftovers.written(changes.desired, udp=udp)

    async def _serve_health(self, changes: Changes, full: bool) -> None:
        """Most clusters have no such Service: then only the changed ports are checked, not every port."""
        desired, known = changes.desired, self._health_ports
        touched = [desired.ports[name] for name in changes.ports if name in desired.ports]
        wanted = any(port.health_check_node_port for port in touched)
        if full or wanted or self._servers.failing or any(name.service in known for name in changes.ports):
            self._health_ports = health_check_ports(desired)
            await self._servers.sync(self._health_ports, local_ready(desired, self._health_ports))

    def _report(self, problems: Iterable[Problem]) -> None:
        for problem in limited_each(problems):
            log.warning("%s: %s (left out; everything else is served)", problem.obj, problem.message)

    def _poke_if_pending(self) -> None:
        if self._started and self._tracker.pending:
            self._poke()

    def _poke(self) -> None:
        if self._traces is not None:
            self._traces.queued()
        self._health.queued(self.family, self._clock.steady())
        self._metrics.last_queued.labels(self.family.value).set(self._clock.now())
        self.runner.poke()
