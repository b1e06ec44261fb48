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
from nodelib.daemon import run_daemon
from nodelib.errors import NotFound
from nodelib.firewall.objects import Family
from nodelib.http_server import Handler, json_response, serve, text_response
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.kube.events import Events
from nodelib.nft.edge import NftError, NftTable
from nodelib.nft.generation import read_generation
from nodelib.sdnotify import notify_systemd
from nodelib.tasks import Supervisor
from policy.edge import others, socket_server
from policy.edge.held_file import HeldFile
from policy.edge.metrics import Metrics
from policy.enforcer import Enforcer
from policy.model import Direction, Name, Problem
from policy.plan import layout, parse
from policy.plan.difference import removal
from policy.plan.program import Planner, Program
from policy.protection import Protection
from policy.reports import Reports
from policy.settings import Settings, load_settings
from policy.watches import Watches

log = logging.getLogger(__name__)

_LOOK_FOR_OTHERS = 300.0  # seconds; reading the chains of a large iptables takes a second of CPU time
_UNHEALTHY = 60.0  # seconds that a change may wait for its sync
_EVENT_PAUSE = 60.0  # seconds between two events about failed syncs
_TOO_MUCH = "all of its rules, because the policies of this namespace are too many or too large for a node"
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
    tables = {family: NftTable(family, layout.TABLE) for family in _families()}
    report = await _can_report(tables)
    async with Supervisor("policy") as supervisor:
        supervisor.stop_on_signals()
        client = KubeClient(access, user_agent="nodewright-policy")
        supervisor.on_stop("API connections", client.close)
        daemon = _Daemon(settings, supervisor, client, tables, report, SystemClock())
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
        tables: Mapping[Family, NftTable],
        report: bool,
        clock: Clock,
    ) -> None:
        disable_created_metrics()
        self._settings, self._supervisor, self._clock = settings, supervisor, clock
        self._events = Events(client, settings.node, clock, "nodewright-policy")
        self._metrics = Metrics()
        self._other = ""
        self._failing_since = 0.0
        self._last_event = -_EVENT_PAUSE
        self._reports, self._left_out = Reports(), set[Name]()
        planners = {family: Planner(family, settings.node, report=report) for family in tables}
        self._enforcer = Enforcer(tables, planners, clock, self, read_generation)
        file = HeldFile(settings.state)
        self._protection = Protection(self._enforcer, file, file.load(), lambda: self._other)
        self._watches = Watches(client, on_policy=self._on_policy, on_pod=self._on_pod, on_namespace=self._on_namespace)

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
        for reflector in self._watches.all:
            spawn(f"watch-{reflector.name}", reflector.run)
        self._supervisor.once("first-sync", self._begin)
        if self._settings.port:
            where = (self._settings.address, self._settings.port)
            spawn("metrics", partial(serve, self._routes(), *where, "health and metrics of the policy daemon"))

    def synced(self, seconds: float, programs: Mapping[Family, Program]) -> None:
        self._failing_since = 0.0
        self._metrics.sync.observe(seconds)
        for family, program in programs.items():
            for direction in Direction:
                count = len(program.elements[layout.MAPS[direction]])
                self._metrics.isolated.labels(direction.lower(), family.value).set(count)

        left_out = {name for program in programs.values() for name in program.left_out}
        for name in sorted(left_out - self._left_out):
            self._report(name, "PolicyTooLarge", [Problem(f"NetworkPolicy {name}", _TOO_MUCH)])
        self._left_out = left_out

    def failed(self, error: Exception) -> None:
        self._metrics.failures.inc()
        now = self._clock.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._last_event >= _EVENT_PAUSE:
            self._last_event = now
            self._tell("Node", "", self._settings.node, "NetworkPolicyNotWritten", str(error))

    async def _begin(self) -> None:
        """Wait until everything has been listed: rules made from partial lists would cut pods off."""
        await self._watches.synced()
        self._protection.forget_unknown()
        self._warn_of_unfiltered_bridges()
        if self._other:
            await self._yield_to(self._other)
        else:
            self._enforcer.start()
            self._metrics.enforcing.set(1)
            await self._enforcer.first_sync.wait()
            log.info("network policies are in force")
            gc.freeze()
        self._supervisor.spawn("others", self._watch_for_others)

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
                self._enforcer.start()
                self._metrics.enforcing.set(1)

    async def _yield_to(self, found: str) -> None:
        log.warning("network policies are left to another implementation: %s", found)
        self._metrics.enforcing.set(0)
        await self._enforcer.remove()
        note = f"NetworkPolicies are not enforced by nodewright on this node: {found}"
        self._tell("Node", "", self._settings.node, "NetworkPolicyLeftToOther", note, warning=False)

    def _warn_of_unfiltered_bridges(self) -> None:
        for family, path in _BRIDGE_FILTER.items():
            if family in self._enforcer.families and _read(path) != "1":
                note = f"{path} is not 1: policies are not enforced between pods of this node ({family})"
                log.error("%s. Load br_netfilter and set it.", note)
                self._tell("Node", "", self._settings.node, "NetworkPolicyBridgeNotFiltered", note)

    def _on_policy(self, kind: str, obj: Json) -> None:
        name = parse.name_of(obj)
        if kind == "DELETED":
            self._enforcer.set_policy(name, None)
            return
        policy, problems = parse.policy(obj)
        self._enforcer.set_policy(name, policy)
        self._report(name, "PartNotUnderstood", problems)

    def _report(self, name: Name, reason: str, problems: list[Problem]) -> None:
        text = self._reports.about_policy(name, problems, self._clock.monotonic())
        if text:
            log.warning("NetworkPolicy %s: %s (left out: what it would allow stays closed)", name, text)
            self._tell("NetworkPolicy", name.namespace, name.name, reason, text)

    def _on_pod(self, kind: str, obj: Json) -> None:
        if kind == "DELETED":
            name = parse.name_of(obj)
            self._enforcer.set_pod(name, None)
            self._protection.forget(name)
            return
        pod = parse.pod(obj)
        self._enforcer.set_pod(pod.name, pod)

    def _on_namespace(self, kind: str, obj: Json) -> None:
        name = parse.name_of(obj).name
        self._enforcer.set_namespace(name, None if kind == "DELETED" else parse.namespace_labels(obj))

    async def _answer(self, question: Json) -> Json:
        began = self._clock.monotonic()
        answer = await self._protection.answer(question)
        if answer.get("protected"):
            self._metrics.protected.observe(self._clock.monotonic() - began)
        return answer

    def _tell(self, kind: str, namespace: str, name: str, reason: str, note: str, *, warning: bool = True) -> None:
        async def record() -> None:
            await self._events.record(
                kind, namespace, name, reason=reason, action="EnforceNetworkPolicy", note=note, warning=warning
            )

        self._supervisor.once(f"event-{kind}-{namespace}-{name}-{reason}", record)

    def _routes(self) -> dict[str, Handler]:
        async def healthz(_: web.Request) -> web.Response:
            problem = self.problem()
            body = {"healthy": not problem, "problem": problem, "leftTo": self._other, "api": self._watches.last_error}
            return json_response(body, 503 if problem else 200)

        async def metrics(_: web.Request) -> web.Response:
            return text_response(self._metrics.text())

        return {"/healthz": healthz, "/metrics": metrics}


def _families() -> list[Family]:
    return list(Family) if Path("/proc/net/if_inet6").exists() else [Family.IPV4]


async def _can_report(tables: Mapping[Family, NftTable]) -> bool:
    """Whether the kernel can report dropped packets (nfnetlink_log). Raises NotFound without nf_tables."""
    try:
        for table in tables.values():
            await table.exists()
    except NftError as error:
        raise NotFound(
            str(error),
            obj="nftables",
            step="check whether it can be used",
            action="Network policies need root and a kernel with nf_tables.",
        ) from error
    probe = NftTable(Family.IPV4, layout.PROBE)
    try:
        await probe.commit(layout.report_probe())
    except NftError as error:
        log.info("dropped packets are only counted, the kernel cannot report them: %s", error)
        return False
    return True


async def _clean_up() -> None:
    for family in _families():
        await NftTable(family, layout.TABLE).commit(removal())


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
