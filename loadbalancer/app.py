"""Builds the load balancer daemon out of its parts and starts its tasks."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from prometheus_client import disable_created_metrics

from loadbalancer.announcer import Announcer
from loadbalancer.edge.held_file import HeldFile
from loadbalancer.edge.link import Link
from loadbalancer.edge.metrics import Metrics
from loadbalancer.leader import Leader
from loadbalancer.leases import DURATION, IDLE_DURATION, LEADER, RENEW, Election, Membership, holder, member
from loadbalancer.model import Address, Problem, Service
from loadbalancer.plan import filters, frames, table
from loadbalancer.plan.index import Index
from loadbalancer.plan.liveness import Liveness
from loadbalancer.plan.place import Nodes
from loadbalancer.settings import Settings, load_settings
from loadbalancer.watches import LEASES, Watches
from nodelib.backoff import Backoff
from nodelib.clock import Clock, SystemClock
from nodelib.daemons.http_server import Handler, json_response, serve, text_response
from nodelib.daemons.program import run_daemon
from nodelib.daemons.sdnotify import notify_systemd
from nodelib.errors import NodewrightError
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.events import Events
from nodelib.tasks import Supervisor

log = logging.getLogger(__name__)

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_BEAT = 0.1  # seconds between two looks at who is alive, while addresses are announced
_REST = 0.02  # seconds between two rounds
_LONGEST_PAUSE = 5.0  # seconds after rounds that failed
_RENEWAL_TIMEOUT = 1.5  # seconds: a renewal that takes longer is as good as none
_WRITE_TIMEOUT = 5.0
_MOST_EVENTS = 50  # that wait to be written; more are dropped, as upstream's recorders do


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon and return its exit status.

    0: it was asked to stop; 1: it failed; 2: the command line or a file that it names is wrong.
    """
    return run_daemon("loadbalancer", argv, load_settings, _work)


def _work(settings: Settings) -> int:
    asyncio.run(run(settings))
    return 0


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. The addresses stay this node's if it is started again within two seconds."""
    access = load_kubeconfig(settings.kubeconfig)
    async with Supervisor("loadbalancer") as supervisor:
        supervisor.stop_on_signals()
        renewals = KubeClient(access, user_agent="nodewright-loadbalancer", timeout=_RENEWAL_TIMEOUT)
        writes = KubeClient(access, user_agent="nodewright-loadbalancer", timeout=_WRITE_TIMEOUT)
        watches = KubeClient(access, user_agent="nodewright-loadbalancer")
        for client in (renewals, writes, watches):
            supervisor.on_stop("API connections", client.close)
        daemon = _Daemon(settings, supervisor, renewals, writes, watches, SystemClock())
        daemon.start()
        notify_systemd(supervisor, lambda: "", SystemClock())
        await supervisor.wait()


class _Daemon:
    """The parts of one running daemon and the connections between them."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        renewals: KubeClient,
        writes: KubeClient,
        watches: KubeClient,
        clock: Clock,
    ) -> None:
        disable_created_metrics()
        node, identity = settings.node, f"{settings.node}_{secrets.token_hex(8)}"
        self._settings, self._supervisor, self._clock = settings, supervisor, clock
        self._metrics, self._index = Metrics(), Index()
        self._events = Events(writes, node, clock, "nodewright-loadbalancer")
        self._liveness = Liveness(member(node), IDLE_DURATION)
        self._members: set[str] = set()
        self._busy = self._able = False
        self._poked = asyncio.Event()
        self._waiting_events = 0
        self._membership = Membership(renewals, LEASES, node, clock)
        self._election = Election(renewals, LEASES, identity, self._liveness, clock)
        self._leader = Leader(writes, LEASES, identity, settings.pool, self._index, self, clock)
        self._announcer = Announcer(
            HeldFile(settings.state), self, clock, lambda: self._liveness.fresh(self._clock.monotonic())
        )
        self._watches = Watches(
            watches,
            node,
            on_service=self._on_service,
            on_slice=self._on_slice,
            on_lease=self._on_lease,
            on_node=self._on_node,
        )
        self._last_error = ""
        self._slices_watched = False

    def start(self) -> None:
        spawn, settings = self._supervisor.spawn, self._settings
        filtered = [(frames.ARP, filters.packed(filters.arp(settings.pool)))]
        if 6 in settings.pool.families:
            filtered.append((frames.IPV6, filters.packed(filters.ndp(settings.pool))))
        link = Link(settings.interface, filtered, self._announcer.received)
        spawn("announce", partial(self._announcer.run, link))
        for reflector in self._watches.always:
            spawn(f"watch-{reflector.name}", reflector.run)
        spawn("membership", self._join)
        spawn("elect", self._elect)
        spawn("lead", self._lead)
        if settings.port:
            where = (settings.address, settings.port)
            spawn("metrics", partial(serve, self._routes(), *where, "health and metrics of the load balancer daemon"))

    async def _join(self) -> None:
        """Until cancelled. Before the Node was read nothing is said: it would tell the others to leave us out."""
        await self._watches.node.synced.wait()
        await self._membership.run()

    async def _elect(self) -> None:
        """Until cancelled: be the leader if there is none. Not beside the rounds, which may take seconds."""
        await self._watches.synced()
        pause = Backoff(_BEAT, RENEW)
        while True:
            try:
                await self._election.step(busy=self._busy)
            except NodewrightError as error:
                log.info("the Lease of the leader: %s", error)
                await self._clock.sleep(pause.next())
            else:
                pause.reset()
                await self._clock.sleep(_BEAT if self._busy else 1.0)
            self._metrics.leader.set(self._election.leads)
            self._poked.set()

    async def _lead(self) -> None:
        """Until cancelled: do what the leader does, while it is this daemon."""
        await self._watches.synced()
        if table.LEASE not in {name for _, name in self._watches.leases.store}:
            self._announcer.assign(frozenset())
        gc.freeze()
        pause = Backoff(_REST, _LONGEST_PAUSE)
        while True:
            await self._poked.wait()
            self._poked.clear()
            try:
                if self._election.leads:
                    await self._lead_once()
            except NodewrightError as error:
                if str(error) != self._last_error:
                    log.warning("addresses of Services: %s; it is tried again", error)
                self._last_error = str(error)
                await self._clock.sleep(pause.next())
            else:
                self._last_error = ""
                pause.reset()
                await self._clock.sleep(_REST)

    async def _lead_once(self) -> None:
        if self._index.needs_endpoints and not self._watches.slices.synced.is_set():
            return  # a Service with policy Local would be announced by a node without endpoints
        now = self._clock.monotonic()
        live = self._liveness.live(now, self._members)
        prefix = len(member(""))
        nodes = Nodes(frozenset(name[prefix:] for name in live), self._liveness.sure(now))
        await self._leader.round(self._election.term, nodes, lambda: self._election.leads)

    def _on_service(self, kind: str, obj: Json) -> None:
        self._index.service(kind, obj)
        self._changed()
        if self._index.needs_endpoints and not self._slices_watched:
            self._slices_watched = True
            self._supervisor.spawn("watch-endpointslices", self._watches.slices.run)

    def _on_slice(self, kind: str, obj: Json) -> None:
        self._index.slice(kind, obj)
        if self._index.needs_endpoints:
            self._changed()

    def _on_lease(self, kind: str, obj: Json) -> None:
        name = str(object_or_empty(obj.get("metadata")).get("name") or "")
        now, gone = self._clock.monotonic(), kind == "DELETED"
        if name == table.LEASE:
            kept = {} if gone else {"metadata": dict(obj["metadata"])}
            self._leader.observe(kept)
            self._announcer.assign(table.of_lease(kept).of_node(self._settings.node))
            self._changed()
            return
        if gone:
            self._liveness.forget(name)
        else:
            self._liveness.observe(name, str(obj["metadata"].get("resourceVersion")), now)
        if name == LEADER:
            self._election.observe({} if gone else {"metadata": dict(obj["metadata"]), "spec": obj.get("spec")})
        elif not gone and holder(obj):
            self._members.add(name)
        else:
            self._members.discard(name)

    def _on_node(self, kind: str, obj: Json) -> None:
        meta = object_or_empty(obj.get("metadata"))
        self._able = kind != "DELETED" and EXCLUDED not in object_or_empty(meta.get("labels"))
        self._membership.of_node(str(meta.get("uid") or "") if kind != "DELETED" else "")
        self._membership.set(busy=self._busy, able=self._able)

    def _changed(self) -> None:
        self._leader.changed()
        busy = self._index.wanted or bool(self._leader.table.rows)
        if busy != self._busy:
            self._busy = busy
            self._liveness.start_over(DURATION if busy else IDLE_DURATION, self._clock.monotonic())
            self._membership.set(busy=busy, able=self._able)
        self._poked.set()

    def problem(self, service: Service, problem: Problem) -> None:
        self._event(service, problem.reason, problem.note, warning=True)

    def given(self, service: Service, addresses: tuple[Address, ...]) -> None:
        note = f"The Service has {', '.join(map(str, addresses))} of the pool."
        self._event(service, "AddressGiven", note, warning=False)

    def counted(self, taken: int, pending: int, moves: int) -> None:
        self._metrics.taken.set(taken)
        self._metrics.pending.set(pending)
        self._metrics.moves.inc(moves)

    def sent(self, announced: int, frames: int, conflicts: int) -> None:
        self._metrics.announced.set(announced)
        self._metrics.answers.inc(frames)
        self._metrics.conflicts.set(conflicts)

    def _event(self, service: Service, reason: str, note: str, *, warning: bool) -> None:
        if self._waiting_events >= _MOST_EVENTS:
            return
        self._waiting_events += 1

        async def record() -> None:
            try:
                await self._events.record(
                    "Service",
                    *service.name,
                    reason=reason,
                    action="GiveAddress",
                    note=note,
                    warning=warning,
                    uid=service.uid,
                )
            finally:
                self._waiting_events -= 1

        self._supervisor.once(f"event-{service.name}-{reason}", record)

    def _routes(self) -> dict[str, Handler]:
        async def healthz(_: web.Request) -> web.Response:
            problem = self._announcer.problem
            body = {
                "healthy": not problem,
                "problem": problem,
                "leads": self._election.leads,
                "givenWay": sorted(map(str, self._announcer.given_way)),
                "api": self._watches.last_error or self._membership.last_error or self._last_error,
            }
            return json_response(body, 503 if problem else 200)

        async def metrics(_: web.Request) -> web.Response:
            return text_response(self._metrics.text())

        return {"/healthz": healthz, "/metrics": metrics}
