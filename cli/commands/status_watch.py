"""`nodewright status --watch`: the API by watches, the daemons and proxies by what this machine says of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from cli.clusters import find
from cli.commands.status import lines
from cli.watching.changes import Entry, Frame, Key
from cli.watching.collections import Collections
from cli.watching.follow import follow
from cli.watching.screens import screen
from controlplane.cluster.advice import line, ours
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.podless import WORKLOADS, podless
from controlplane.cluster.plan.readiness import Pod, ProxyState, pod_facts
from controlplane.cluster.work.status import NODES, PODS, ApiAnswer, Daemon, NodeStatus, Status, ask_proxies, seen
from nodelib.clock import Clock, SystemClock
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.tasks import Supervisor

_DAEMONS = 1.0  # seconds between two looks at the state files of the supervisors, which are a few reads
_PROXIES = 5.0  # seconds between two questions to the proxies, each of which is a process
_PATHS = {"node": NODES, "pod": PODS, **WORKLOADS}
_VOLATILE = frozenset({"proxy", "proxy_synced"})  # a proxy that is well says so with the time, each time anew


def run(name: str, *, as_json: bool, plain: bool) -> None:
    """Follow it until SIGINT or SIGTERM. Raises NotFound for an unknown cluster."""
    asyncio.run(_run(find(name), as_json, plain))


async def _run(cluster: Cluster, as_json: bool, plain: bool) -> None:
    logging.basicConfig(level=logging.ERROR)
    clock, access = SystemClock(), load_kubeconfig(cluster.admin_kubeconfig)
    async with (
        KubeClient(access, user_agent="nodewright-status", timeout=10) as client,
        Supervisor("status") as tasks,
    ):
        tasks.stop_on_signals()
        source = ClusterSource(cluster, client, clock)
        source.collections.start(tasks)
        with screen(f"{line(cluster.name, 'status')} --watch", as_json=as_json, plain=plain) as shown:
            await tasks.unless_stopped(follow(source, shown, clock))


class ClusterSource:
    """Implements cli.watching.follow.Source."""

    def __init__(self, cluster: Cluster, client: KubeClient, clock: Clock) -> None:
        self.news = asyncio.Event()
        self.collections = Collections(client, _PATHS, self.news)
        self._cluster, self._client, self._clock = cluster, client, clock
        self._version = ""
        self._proxies: tuple[ProxyState, ...] = ()
        self._asked, self._pids = 0.0, tuple[int, ...]()

    async def frame(self) -> Frame:
        await self.collections.first()
        if not self._proxies:
            self._proxies, self._asked = await ask_proxies(self._cluster), self._clock.monotonic()
        status = await seen(self._cluster, await self._api(), self._proxies)
        pids = tuple(one.pid for one in status.daemons)
        if pids != self._pids or self._clock.monotonic() - self._asked > _PROXIES:
            self._pids, self._asked = pids, self._clock.monotonic()
            self._proxies = await ask_proxies(self._cluster)
            status = await seen(self._cluster, await self._api(), self._proxies)
        self.collections.said()
        return frame(status, self._workloads())

    def rest(self) -> float:
        return _DAEMONS

    async def _api(self) -> ApiAnswer:
        """While it does not answer, the pods are those that were known before."""
        problem = self.collections.why_silent("node") or self.collections.why_silent("pod")
        lists = self.collections.lists()
        pods = tuple(pod_facts(one) for one in lists.get("pod", ()))
        if problem:
            self._version = ""
        elif not self._version:
            self._version = await self._ask_version()
        return ApiAnswer(problem, lists.get("node", ()), pods, self._version, podless(lists))

    def _workloads(self) -> Iterator[Key]:
        for kind, found in self.collections.lists().items():
            for obj in found if kind in WORKLOADS else ():
                yield _workload_key(kind, str(obj["metadata"].get("namespace", "")), str(obj["metadata"]["name"]))

    async def _ask_version(self) -> str:
        try:
            return str((await self._client.get("/version")).get("gitVersion", ""))
        except NodewrightError:
            return ""  # asked again with the next frame


def frame(status: Status, workloads: Iterable[Key] = ()) -> Frame:
    """The status as a moment that can be compared with others. `workloads`: all there are, as _workload_key()."""
    document = json.loads(json.dumps(asdict(status)))
    others = {_pod_key(one): "is ready" if one.ready else "has completed" for one in status.pods}
    others |= dict.fromkeys(workloads, "has pods")
    return Frame(dict(_entries(status)), document, lambda now: lines(status, now), others, (), _VOLATILE)


def _entries(status: Status) -> Iterator[tuple[Key, Entry]]:
    answers = (
        f"does not answer ({status.api})" if status.api else "answers" + f" ({status.version})" * bool(status.version)
    )
    yield "API server", (answers,)
    for path in status.missing:
        yield f"namespace {path}", (f"is missing; {ours(status.name, 'up')} repairs it",)
    for words in status.skew:
        yield f"version skew {words}", ("kubelet and API server are too far apart",)
    for unit, pid in status.supervisors.items():
        yield f"supervisor {unit}", ("running" if pid else "down",)
    for node in status.nodes:
        yield f"node {node.name}", tuple(_node(node))
    for daemon in status.daemons:
        yield f"daemon {daemon.unit}/{daemon.name}", (_daemon(daemon),)
    for pod in status.pods:
        if not pod.ready and pod.phase != "Succeeded":
            yield _pod_key(pod), (f"{pod.reason or pod.phase}" + (f", on {pod.node}" if pod.node else ", on no node"),)
    for one in status.podless:
        yield _workload_key(one.kind, one.namespace, one.name), (one.reason,)


def _node(node: NodeStatus) -> Iterator[str]:
    yield ", ".join(filter(None, (node.waits_for or node.state, node.feels)))
    yield f"its proxy {node.proxy_problem}" if node.proxy_problem else "its proxy is well"
    if node.certificate:
        yield f"serving certificate: {node.certificate}"


def _daemon(daemon: Daemon) -> str:
    if daemon.alive:
        return f"runs as process {daemon.pid}, start {daemon.starts}"
    if daemon.last_exit:
        return f"is down, it ended with {daemon.last_exit}"
    return "is down" if daemon.starts else "is down, it was not started"


def _pod_key(pod: Pod) -> Key:
    return f"pod {pod.namespace}/{pod.name}"


def _workload_key(kind: str, namespace: str, name: str) -> Key:
    return f"{kind} {namespace}/{name}"
