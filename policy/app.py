"""Builds the policy daemon out of its parts and starts its tasks."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aiohttp import web
from prometheus_client import disable_created_metrics

from nodelib.clock import Clock, SystemClock
from nodelib.daemons.http_server import Handler, json_response, serve, text_response
from nodelib.daemons.program import run_daemon
from nodelib.daemons.sdnotify import notify_systemd
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.events import Events
from nodelib.netlink.families import BRIDGE
from nodelib.nft.edge import NftError, NftTable
from nodelib.nft.generation import GenerationReader
from nodelib.nft.traced import TracedBatches
from nodelib.nft.wire import Message
from nodelib.tasks import Supervisor
from nodelib.traces.steps import NOT_TRACED
from policy import abilities
from policy.abilities import Abilities
from policy.domains.edge import HeldAnswers
from policy.domains.work import Domains
from policy.drops.edge import Refusals
from policy.drops.log import DropLog
from policy.drops.refused import RefusedCounts
from policy.edge import others, socket_server
from policy.edge.held_file import HeldFile
from policy.edge.metrics import Metrics
from policy.enforcer import Enforcer
from policy.events.work import PolicyEvents
from policy.family_table import Table
from policy.frames import Frames
from policy.model import Direction, Name, Policy, Problem
from policy.plan import cluster_layout, frames, layout, parse
from policy.plan.difference import removal
from policy.plan.directory import Directory
from policy.plan.program import Planner, Program
from policy.protection import Protection, read
from policy.settings import Settings, load_settings
from policy.tracing import SERVICE, PolicyTracing
from policy.watches.cluster_intake import ClusterIntake
from policy.watches.network_policies import Watches
from policy.watches.policy_intake import PolicyIntake

log = logging.getLogger(__name__)

_LOOK_FOR_OTHERS = 300.0  # seconds; reading the chains of a large iptables takes a second of CPU time
_UNHEALTHY = 60.0  # seconds that a change may wait for its sync
_BRIDGE_FILTER = {
    Family.IPV4: "/proc/sys/net/bridge/bridge-nf-call-iptables",
    Family.IPV6: "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon and return its exit status.

    0: it was asked to stop; 1: it failed; 2: the command line or a file that it names is wrong.
    """
    return run_daemon("policy", argv, load_settings, _work)


def _work(settings: Settings) -> int:
    asyncio.run(_clean_up() if settings.cleanup else run(settings))
    return 0


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. The rules stay, so policies stay in force without the daemon."""
    access = load_kubeconfig(settings.kubeconfig)
    tables = {family: NftTable(family, layout.TABLE) for family in abilities.families()}
    able = await abilities.find(tables, settings.dns_servers)
    async with Supervisor("policy") as supervisor:
        supervisor.stop_on_signals()
        client = KubeClient(access, user_agent="nodewright-policy")
        supervisor.on_stop("API connections", client.close)
        daemon = _Daemon(settings, supervisor, client, tables, able, SystemClock())
        await daemon.start()
        notify_systemd(supervisor, daemon.problem, SystemClock())
        await supervisor.wait()


class _Daemon:
    """The parts of one running daemon and the connections between them."""

    def __init__(
        self,
        settings: Settings,
        supervisor: Supervisor,
        client: KubeClient,
        tables: Mapping[Family, NftTable[Family]],
        able: Abilities,
        clock: Clock,
    ) -> None:
        disable_created_metrics()
        self._settings, self._supervisor, self._clock = settings, supervisor, clock
        self._metrics = Metrics()
        self._traces = self._tracing()
        self._other = ""
        self._failing_since = 0.0
        self._directory = Directory(settings.node)
        recorder = Events(client, settings.node, clock, "nodewright-policy")
        self._events = PolicyEvents(recorder, supervisor.once, self._directory, settings.node, clock)
        planners = {
            family: Planner(family, settings.node, report=able.report, marked=able.marked, resolvers=able.resolvers)
            for family in tables
        }
        # Tables of their own, with sockets of their own: nobody waits for what somebody else reads or writes.
        readers, more = ({family: NftTable(family, layout.TABLE) for family in tables} for _ in range(2))
        seen: Mapping[Family, Table] = tables
        if self._traces is not None:
            seen = {family: TracedBatches(one, layout.TABLE, family) for family, one in tables.items()}
        self._enforcer = Enforcer(seen, planners, clock, self, GenerationReader(), self._kept, readers, self._traces)
        self._domains = Domains(more, self._directory.addresses, clock, beside=self._enforcer.beside)
        listens = able.resolvers is not None
        self._answers = HeldAnswers(cluster_layout.QUEUE, clock, self._metrics.answers.inc) if listens else None
        file = HeldFile(settings.state)
        self._protection = Protection(self._enforcer, file, file.load(), lambda: self._other)
        self._refusals = Refusals(layout.REPORTS, clock, self._metrics.count_reports) if able.report else None
        self._drops = DropLog(self._directory, lambda: self._enforcer.programs, self._events, self._no_drops, clock)
        self._refused = RefusedCounts(readers, lambda: self._enforcer.programs)
        self._frames = Frames(NftTable(BRIDGE, frames.TABLE), clock, self._tell_of_frames, self._enforcer.beside)
        self._policies = PolicyIntake(self._on_policy, self._policy_gone, clock)
        self._watches = Watches(
            client, on_policy=self._policies.on_policy, on_pod=self._on_pod, on_namespace=self._on_namespace
        )
        self._cluster = ClusterIntake(
            client, self._enforcer, self._events.cluster_policy, self._events.policy_gone, able.no_names
        )

    def _tracing(self) -> PolicyTracing | None:
        settings = self._settings
        if not settings.tracing.per_million:
            return None
        from nodelib.traces.daemon import start_tracing

        where = (self._supervisor, self._metrics.registry, self._clock)
        return PolicyTracing(start_tracing(settings.tracing, SERVICE, settings.node, *where))

    def problem(self) -> str:
        """Why systemd should restart this process, or ""."""
        since = self._failing_since
        late = since and self._clock.monotonic() - since > _UNHEALTHY
        return f"changes are not written: {self._enforcer.last_error}" if late else ""

    async def start(self) -> None:
        spawn = self._supervisor.spawn
        self._other = await others.find(self._settings.cni_folder)
        spawn("sync", self._enforcer.runner.run)
        spawn("audit", self._enforcer.run_audit)
        spawn("socket", partial(socket_server.serve, self._settings.socket, self._answer), critical=True)
        if self._refusals is not None:
            spawn("drops", partial(self._refusals.run, self._drops.take))
        for reflector in self._watches.all:
            spawn(f"watch-{reflector.name}", reflector.run)
        spawn("read-policies", self._policies.run)
        spawn("watch-cluster-policies", self._cluster.watch.run)
        self._supervisor.once("first-sync", self._begin)
        if self._settings.port:
            where = (self._settings.address, self._settings.port)
            spawn("metrics", partial(serve, self._routes(), *where, "health and metrics of the policy daemon"))

    def synced(self, seconds: float, programs: Mapping[Family, Program]) -> None:
        self._failing_since = 0.0
        self._domains.synced(programs)
        self._events.synced()
        self._metrics.sync.observe(seconds)
        for family, program in programs.items():
            for direction in Direction:
                count = len(program.elements[layout.MAPS[direction]])
                self._metrics.isolated.labels(direction.lower(), family.value).set(count)
        self._events.too_large({name for program in programs.values() for name in program.left_out})

    def _kept(self, program: Program) -> list[Message]:
        return self._domains.kept(program)

    def failed(self, error: Exception) -> None:
        self._metrics.failures.inc()
        self._failing_since = self._failing_since or self._clock.monotonic()
        self._events.failed(error)

    async def _begin(self) -> None:
        """Wait until everything has been listed: rules made from partial lists would cut pods off."""
        await self._watches.synced()
        await self._policies.settled()
        await self._cluster.watch.ready.wait()
        self._protection.forget_unknown()
        self._warn_of_unfiltered_bridges()
        await self._domains.load()
        if self._other:
            await self._yield_to(self._other)
        else:
            await self._enforce()
            await self._enforcer.first_sync.wait()
            log.info("network policies are in force")
            gc.freeze()
        if self._answers is not None:
            self._supervisor.spawn("dns-answers", partial(self._answers.run, self._domains.learn))
        self._supervisor.spawn("others", self._watch_for_others)
        self._supervisor.spawn("frames", self._frames.run)

    async def _enforce(self) -> None:
        await self._frames.enforce()
        self._enforcer.start()
        self._metrics.enforcing.set(1)

    async def _watch_for_others(self) -> None:
        """Until cancelled: stand back when another implementation appears, step in when it is gone."""
        while True:
            await self._clock.sleep(_LOOK_FOR_OTHERS)
            found = await others.find(self._settings.cni_folder)
            if found and not self._other:
                self._other = found
                await self._yield_to(found)
            elif self._other and not found:
                log.info("no other implementation is left: policies are enforced by nodewright again")
                self._other = ""
                await self._enforce()

    async def _yield_to(self, found: str) -> None:
        log.warning("network policies are left to another implementation: %s", found)
        self._metrics.enforcing.set(0)
        await self._enforcer.remove()
        await self._frames.remove()
        note = f"NetworkPolicies are not enforced by nodewright on this node: {found}"
        self._events.node("NetworkPolicyLeftToOther", note, warning=False)

    def _warn_of_unfiltered_bridges(self) -> None:
        for family, path in _BRIDGE_FILTER.items():
            if family in self._enforcer.families and _read(path) != "1":
                note = f"{path} is not 1: policies are not enforced between pods of this node ({family})"
                log.error("%s. Load br_netfilter and set it.", note)
                self._events.node("NetworkPolicyBridgeNotFiltered", note)

    def _tell_of_frames(self, problem: str) -> None:
        note = (
            "pods with CAP_NET_RAW can pass by policies between pods of this node, in frames with VLAN tags, and answer"
            f" for each other's addresses: {problem}"
        )
        log.error("%s. Install nft; the kernel needs nf_tables for bridges (NF_TABLES_BRIDGE).", note)
        self._events.node("NetworkPolicyFramesNotFiltered", note[:1000])

    def _no_drops(self) -> str:
        """Why no dropped packets are reported here, "" if they are."""
        if self._other:
            return f"network policies are left to another implementation: {self._other}"
        if self._refusals is None:
            return "the node's kernel cannot report dropped packets (nfnetlink_log, nft_log and nft_limit)"
        return self._refusals.problem and f"dropped packets are only counted: {self._refusals.problem}"

    def _policy_gone(self, name: Name) -> None:
        self._enforcer.set_policy(name, None)
        self._directory.set_policy(name, None)
        self._events.policy_gone(name)
        self._metrics.forget_policy(*name)

    def _on_policy(self, policy: Policy, uid: str, problems: Sequence[Problem]) -> None:
        self._enforcer.set_policy(policy.name, policy)
        self._directory.set_policy(policy.name, policy)
        self._events.policy(policy.name, uid, problems)

    def _on_pod(self, kind: str, obj: Json) -> None:
        if kind == "DELETED":
            name = parse.name_of(obj)
            # By now a new pod may have one of them.
            addresses = [one for one in self._directory.of(name) if self._directory.party(one).name == name]
            self._enforcer.set_pod(name, None)
            self._directory.set_pod(name, None)
            self._protection.forget(name)
            self._frames.gone(name)
            self._supervisor.once(f"forget-answers-{name}", partial(self._domains.forget, addresses))
            return
        pod = parse.pod(obj)
        self._enforcer.set_pod(pod.name, pod)
        self._directory.set_pod(pod.name, pod)
        if pod.node == self._settings.node:
            self._frames.seen(pod.name, pod.addresses)
        self._events.pod(pod)

    def _on_namespace(self, kind: str, obj: Json) -> None:
        name = parse.name_of(obj).name
        labels = None if kind == "DELETED" else parse.namespace_labels(obj)
        self._enforcer.set_namespace(name, labels)
        self._directory.set_namespace(name, labels)

    async def _answer(self, question: Json) -> Json:
        if question.get("about") == "drops":
            return await self._drops.answer(question)
        began = self._clock.monotonic()
        name, uid, addresses = read(question)
        with self._traces.wait(question) if self._traces is not None else NOT_TRACED as span:
            await self._domains.forget(addresses)
            answer, _ = await asyncio.gather(self._protection.answer(question), self._frames.hold(name, addresses))
            if span is not None and self._traces is not None:
                self._traces.waited(span, name, uid, answer)
        if answer.get("protected"):
            self._metrics.protected.observe(self._clock.monotonic() - began)
            self._directory.hold(name, uid, addresses)
        return answer

    async def _count_refused(self) -> None:
        try:
            for (name, direction), packets in (await self._refused.more()).items():
                self._metrics.count_refused(*name, direction.lower(), packets)
        except NftError as error:
            log.warning("the counters of refused packets could not be read: %s", error)

    def _routes(self) -> dict[str, Handler]:
        async def healthz(_: web.Request) -> web.Response:
            problem = self.problem()
            api = "; ".join(filter(None, (self._watches.last_error, self._cluster.watch.last_error)))
            body = {"healthy": not problem, "problem": problem, "leftTo": self._other, "api": api}
            return json_response(body, 503 if problem else 200)

        async def metrics(_: web.Request) -> web.Response:
            await self._count_refused()
            self._metrics.policies.set(self._directory.policy_count)
            self._metrics.learnt.set(self._domains.memory.count)
            return text_response(self._metrics.text())

        return {"/healthz": healthz, "/metrics": metrics}


async def _clean_up() -> None:
    for family in abilities.families():
        await NftTable(family, layout.TABLE).commit(removal())
    await Frames(NftTable(BRIDGE, frames.TABLE), SystemClock(), log.warning).remove()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
