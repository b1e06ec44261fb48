"""Asks the agents of this machine by their local sockets, and the API server. Any of them may be down."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from controlplane.cluster.edge import state
from controlplane.cluster.model import Cluster
from controlplane.supervisor.edge import units
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

SOCKET = "/run/nodewright/agent.sock"
_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers. `agents`: by node, the explanations of its pods; `silent`: by node, why it did not answer.

    `pods` and `events` are the API server's; without an answer `pods` is None and `api` says why.
    """

    agents: Mapping[str, tuple[Json, ...]]
    silent: Mapping[str, str]
    pods: tuple[Json, ...] | None
    events: tuple[Json, ...]
    api: str


async def ask(name: str, kubeconfig: str = "") -> Answers:
    """Ask all of them at once. `name`: a cluster of `up`; if there is none, this machine's own agent is asked."""
    cluster = state.load(name)
    ways = sockets(cluster)
    config = kubeconfig or (cluster.admin_kubeconfig if cluster is not None else _own_kubeconfig())
    listed = asyncio.ensure_future(_api(config))
    replies = await asyncio.gather(*(asked(path, "/why") for path in ways.values()))
    pods, events, api = await listed
    agents, silent = {}, {}
    for node, (found, problem) in zip(ways, replies, strict=True):
        if found is None:
            silent[node] = problem
        else:
            agents[node] = tuple(found["pods"])
    return Answers(agents, silent, pods, events, api)


async def ask_for(name: str, node: str, namespace: str, pod: str) -> Json | None:
    """The agent's explanation of one pod with its resource costs; `node` as in Answers.agents. None: no answer."""
    return (await asked(sockets(state.load(name)).get(node, ""), f"/why/{namespace}/{pod}"))[0]


def sockets(cluster: Cluster | None) -> dict[str, str]:
    """The agent sockets by node; without a cluster this machine's own. "" where no agent runs."""
    if cluster is None:
        return {"this node": SOCKET}
    found = {}
    for node in cluster.nodes:
        agent = units.programs(cluster.unit_dir(node.name)).get("agent") or {}
        # Each node has its own /run, so the path leads through the agent's mount namespace.
        found[node.name] = f"/proc/{agent['pid']}/root{SOCKET}" if agent.get("alive") else ""
    return found


def _own_kubeconfig() -> str:
    known = (os.environ.get("KUBECONFIG", ""), "/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf")
    return next((path for path in known if path and os.path.exists(path)), "")


async def asked(path: str, what: str) -> tuple[Json | None, str]:
    """The agent's answer to GET `what` at the socket `path`, or None and the reason."""
    if not path:
        return None, "its agent is not running"
    try:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path), timeout=timeout) as session,
            session.get(f"http://agent{what}") as answer,
        ):
            if answer.status != 200:
                return None, f"its agent answers {answer.status}"
            return dict(await answer.json()), ""
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        return None, _why_silent(error, path)


def _why_silent(error: Exception, path: str) -> str:
    # aiohttp wraps the socket's error in one of its own, which keeps the number.
    match getattr(error, "errno", None):
        case errno.EACCES | errno.EPERM:
            return "only root may open its socket"
        case errno.ENOENT | errno.ECONNREFUSED:
            return f"its agent is not running (nothing listens on {path})"
    return f"its agent does not answer ({error or type(error).__name__})"


async def _api(kubeconfig: str) -> tuple[tuple[Json, ...] | None, tuple[Json, ...], str]:
    if not kubeconfig:
        return None, (), "no kubeconfig on this machine"
    try:
        client = KubeClient(load_kubeconfig(kubeconfig), user_agent="nodewright-why", timeout=_SECONDS)
    except NodewrightError as error:
        return None, (), str(error)
    try:
        pods, events = await asyncio.gather(client.get("/api/v1/pods"), client.get("/api/v1/events"))
        return tuple(pods.get("items") or ()), tuple(events.get("items") or ()), ""
    except NodewrightError as error:
        return None, (), error.message
    finally:
        await client.close()
