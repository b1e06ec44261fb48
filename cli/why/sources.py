"""Asks the agents of this machine by their local sockets, and the API server. Any of them may be down."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from agent.explain.plan.document import usable
from cli import clusters
from cli.policies import sources as policies
from cli.quick_aiohttp import aiohttp
from cli.why.logs import BYTES, LINES, LogWanted
from cli.why.model import KINDS, OTHERS, Facts
from controlplane.cluster.model import Cluster
from nodelib import agent_socket
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiUnreachable, KubeClient
from nodelib.kube.listing import listed
from nodelib.text import one_line
from policy.drops.plan.document import ReportedDrop, reported_drops

SOCKET = "/run/nodewright/agent.sock"
NOT_ALLOWED = "only root may open its socket"
_SECONDS = 3.0
_SHOWN = 200  # bytes of an error
PATHS: Mapping[str, str] = {**{kind: path for kind, (_, path) in KINDS.items()}, **OTHERS}
_LONGER = 15.0  # for the rest of the answers of a server that has answered once


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers. `agents`: by node, the explanations of its pods; `silent`: by node, why it did not answer.

    `facts` is what the API server has; without an answer it is empty and `api` says why. `unlisted`: by kind, why the
    API server did not list it. `drops`: the packets that network policies refused, as far as their daemons answer.
    """

    agents: Mapping[str, tuple[Json, ...]]
    silent: Mapping[str, str]
    facts: Facts
    api: str
    unlisted: Mapping[str, NodewrightError] = field(default_factory=dict)
    drops: tuple[ReportedDrop, ...] = ()

    @property
    def api_answers(self) -> bool:
        return "pod" in self.facts.lists


async def ask(cluster: Cluster | None, kubeconfig: str = "") -> Answers:
    """Ask all of them once."""
    async with Sources(cluster, kubeconfig) as sources:
        return await sources.ask()


class Sources:
    """The agents and the API server of one cluster, or of this machine's own agent if there is no such cluster."""

    def __init__(self, cluster: Cluster | None, kubeconfig: str = "") -> None:
        self._cluster, self._sockets = cluster, dict[str, str]()
        self.kubeconfig = kubeconfig or clusters.kubeconfig_of(cluster)
        self._api, self._no_api = client(self.kubeconfig, _SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._api is not None:
            await self._api.close()

    async def ask(self) -> Answers:
        """Ask all of them at once."""
        (facts, api, unlisted), nodes = await asyncio.gather(self._lists(), self.nodes())
        return replace(nodes, facts=facts, api=api, unlisted=unlisted)

    async def nodes(self) -> Answers:
        """Ask the agents and the policy daemons only, at the sockets that they have now."""
        self._sockets = sockets(self._cluster)
        enforced = self._cluster is None or self._cluster.options.enforces_policies
        daemons = policies.sockets(self._cluster) if enforced else {}
        replies, refused = await asyncio.gather(
            asyncio.gather(*(asked(path, "/why") for path in self._sockets.values())),
            asyncio.gather(*(policies.every_drop(path) for path in daemons.values())),
        )
        drops = tuple(one for answer, _ in refused if answer is not None for one in reported_drops(answer))
        agents, silent = {}, {}
        for node, (found, problem) in zip(self._sockets, replies, strict=True):
            if found is None:
                silent[node] = problem
            elif (pods := _explanations(found)) is not None:
                agents[node] = pods
            else:
                silent[node] = "its agent answers with no explanations"
        return Answers(agents, silent, Facts(), "", drops=drops)

    async def pod(self, node: str, namespace: str, pod: str) -> Json | None:
        """The agent's explanation of one pod with its resource costs; `node` as in Answers.agents. None: no answer."""
        return usable((await asked(self._sockets.get(node, ""), f"/why/{namespace}/{pod}"))[0])

    async def log(self, wanted: LogWanted) -> str:
        """The end of a container's log; "" when it cannot be had."""
        if self._api is None:
            return ""
        params = {"container": wanted.container, "tailLines": str(LINES), "limitBytes": str(BYTES)}
        params |= {"previous": "true"} if wanted.previous else {}
        path = f"/api/v1/namespaces/{wanted.namespace}/pods/{wanted.pod}/log"
        try:
            return await self._api.text(path, params, limit=BYTES)
        except NodewrightError:
            return ""

    async def _lists(self) -> tuple[Facts, str, Mapping[str, NodewrightError]]:
        if self._api is None:
            return Facts(), self._no_api, {}
        every = PATHS
        lists, problems = await _listed(self._api, every)
        if "pod" not in lists:
            return Facts(), problems["pod"].message, problems
        late = {kind: every[kind] for kind, error in problems.items() if isinstance(error, ApiUnreachable)}
        patient = client(self.kubeconfig, _LONGER)[0] if late else None
        if patient is not None:  # the server is alive and slow: what it did not list would be taken for missing
            async with patient:
                more, still = await _listed(patient, late)
            lists |= more
            problems = {kind: error for kind, error in problems.items() if kind not in late} | still
        return Facts(lists), "", problems


async def _listed(
    client: KubeClient, paths: Mapping[str, str]
) -> tuple[dict[str, tuple[Json, ...]], dict[str, NodewrightError]]:
    """The lists by kind, and by kind why there is none: perhaps this user may not, or the server has no such kind."""
    replies = await asyncio.gather(*(listed(client, path) for path in paths.values()), return_exceptions=True)
    lists: dict[str, tuple[Json, ...]] = {}
    problems: dict[str, NodewrightError] = {}
    for kind, reply in zip(paths, replies, strict=True):
        if isinstance(reply, NodewrightError):
            problems[kind] = reply
        elif isinstance(reply, BaseException):
            raise reply
        else:
            lists[kind] = reply.items
            if not reply.whole:
                problems[kind] = Temporary(f"only {len(reply.items)} of them were looked at", step=f"list {kind}s")
    return lists, problems


def _explanations(found: Json) -> tuple[Json, ...] | None:
    """The pods of an agent's answer, None for another answer."""
    listed_pods = found.get("pods")
    if not isinstance(listed_pods, list):
        return None
    return tuple(one for each in listed_pods if (one := usable(each)) is not None)


def client(kubeconfig: str, timeout: float) -> tuple[KubeClient | None, str]:
    """`timeout`: seconds for one answer. The client, or None and why there is none."""
    if not kubeconfig:
        return None, "no kubeconfig on this machine"
    try:
        return KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-why", timeout=timeout), ""
    except NodewrightError as error:
        return None, str(error)


def sockets(cluster: Cluster | None) -> dict[str, str]:
    """The agent sockets by node; without a cluster this machine's own. "" where no agent runs."""
    return clusters.sockets(cluster, "agent", SOCKET)


async def asked(path: str, what: str) -> tuple[Json | None, str]:
    """The agent's answer to GET `what` at the socket `path`, or None and the reason."""
    if not path:
        return None, "its agent is not running"
    try:
        status, found = await agent_socket.get(path, what, _SECONDS)
    except ValueError as error:
        return None, f"its agent answers with no explanation ({one_line(str(error), _SHOWN)})"
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        return None, _why_silent(error, path)
    return (found, "") if status == 200 else (None, f"its agent answers {status}")


def _why_silent(error: Exception, path: str) -> str:
    # aiohttp wraps the socket's error in one of its own, which keeps the number.
    match getattr(error, "errno", None):
        case errno.EACCES | errno.EPERM:
            return NOT_ALLOWED
        case errno.ENOENT | errno.ECONNREFUSED:
            return f"its agent is not running (nothing listens on {path})"
    return f"its agent does not answer ({one_line(str(error), _SHOWN) or type(error).__name__})"
