"""Applies what runs in the cluster, waits until it is ready, and queries the demo in every possible way."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from controlplane.cluster.advice import kubectl, ours
from controlplane.cluster.edge.ask import Answers, ask
from controlplane.cluster.model import CONTROL_PLANE, Cluster, in_url
from controlplane.cluster.plan import manifests
from controlplane.cluster.plan.readiness import Pod, closed_nodes, pod_facts, pods_wait_for, start_waits_for
from controlplane.cluster.work.control_plane import fail_if_exiting, starts
from controlplane.cluster.work.nodes import agent_runs_for, boot_time, restart_agent
from controlplane.waiting import until
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient

_APPLY = {"fieldManager": "nodewright-up", "force": "true"}
_PATIENCE = 60.0  # seconds, with an API server that was just started
_EARLY = frozenset({0, 403, 404, 409, 429, 500, 503})  # answers to what may only come too early; 0: there is none
# Seconds. Until the API server has made its own roles; mostly it is meant, and nobody without rights should wait.
_FORBIDDEN_WITHIN = 10.0
# Seconds from an agent's start. Upstream's kubelet registers a Node only when it starts. Ours goes on trying, unless
# the Node was deleted again and again: what only starts slowly must not be started anew.
_REGISTERS_WITHIN = {"upstream": 30.0, "nodewright": 300.0}
_PODS = "/api/v1/namespaces/{}/pods"


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One way to reach the demo, the names of the pods that answered, and their nodes."""

    way: str
    address: str
    pods: tuple[str, ...]
    nodes: tuple[str, ...]


async def apply(
    client: KubeClient, objects: Iterable[dict[str, Any]], clock: Clock, *, patience: float = _PATIENCE
) -> None:
    """Server-side apply of all objects at once. What a server refuses only because it has just started, or has not yet
    begun to serve a definition that is among them, is tried again for `patience` seconds."""
    async with asyncio.TaskGroup() as group:
        for obj in objects:
            work = _apply_one(client, obj, clock, patience)
            group.create_task(work, name=f"apply {obj['kind']} {obj['metadata']['name']}")


async def _apply_one(client: KubeClient, obj: dict[str, Any], clock: Clock, patience: float) -> None:
    began = clock.monotonic()
    while True:
        try:
            await client.patch(manifests.path_of(obj), obj, kind="apply", params=_APPLY)
            return
        except (ApiError, ApiUnreachable) as error:
            code = error.code if isinstance(error, ApiError) else 0
            within = min(patience, _FORBIDDEN_WITHIN) if code == 403 else patience
            if code not in _EARLY or clock.monotonic() - began >= within:
                raise
        await clock.sleep(0.1)


async def wait_nodes(cluster: Cluster, client: KubeClient, clock: Clock, *, timeout: float = 120) -> str:
    """Wait until every node is Ready and schedulable, and say which ones are closed to pods by a person, "" for none.

    Raises Temporary with what each one waits for. A node that somebody cordoned or tainted would keep a wait for ever.
    """
    boots = {node.name: boot_time(cluster, node) for node in cluster.nodes}
    restarted: set[str] = set()
    taints = {member.name: member.taints for member in cluster.members}
    wanted, patience = list(taints), _REGISTERS_WITHIN[cluster.options.agent]
    by_name: dict[str, Any] = {}

    async def waits() -> str:
        listed = await client.get("/api/v1/nodes")
        by_name.clear()
        by_name.update({item["metadata"]["name"]: item for item in listed["items"]})
        # What the API still says of a node that was started anew since then is of no use.
        reasons = {name: start_waits_for(by_name.get(name), boots[name], taints[name]) for name in wanted}
        for node in cluster.nodes:
            lost = node.name not in by_name and agent_runs_for(cluster, node) > patience
            if lost and node.name not in restarted:
                restarted.add(node.name)
                restart_agent(cluster, node)
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)

    logs = ", ".join(f"{cluster.log_dir(name)}/agent.log" for name in wanted)
    await _until(cluster, waits, clock, timeout, obj="nodes", action=f"Their agents' logs: {logs}")
    return closed_nodes(by_name, taints)


async def label_roles(cluster: Cluster, client: KubeClient) -> None:
    """Give the first node the role that `kubectl get nodes` shows, as kubeadm and kind do. No taint: pods run there.

    It is not applied, which would make a Node that somebody has just deleted, and a kubelet may not do it itself.
    """
    path, role = f"/api/v1/nodes/{cluster.nodes[0].name}", "node-role.kubernetes.io/control-plane"
    if role not in ((await client.get(path))["metadata"].get("labels") or {}):
        await client.patch(path, {"metadata": {"labels": {role: ""}}})


async def wait_pods(
    cluster: Cluster,
    client: KubeClient,
    clock: Clock,
    namespace: str,
    selector: str,
    count: int,
    *,
    timeout: float = 120,
) -> list[Pod]:
    """Wait until `count` pods of the selector are Ready. Raises Temporary with the reason of the first that is not."""
    found: list[Pod] = []
    boots = {node.name: boot_time(cluster, node) for node in cluster.nodes}

    async def waits() -> str:
        listed = await client.get(_PODS.format(namespace), {"labelSelector": selector})
        # What the API still says of a node that was started anew since then is of no use.
        found[:] = [pod_facts(item, boots) for item in listed["items"]]
        return pods_wait_for(found, count)

    await _until(
        cluster,
        waits,
        clock,
        timeout,
        obj=f"pods {selector} in {namespace}",
        action=f"{kubectl(cluster.name, 'describe', 'pod', '-l', selector, namespace=namespace)} says more.",
    )
    return [pod for pod in found if pod.ready]


async def _until(
    cluster: Cluster, waits: Callable[[], Awaitable[str]], clock: Clock, timeout: float, *, obj: str, action: str
) -> None:
    """Wait for `waits`, even if the API server does not answer at the moment; fail if a daemon keeps exiting."""

    before = {unit: starts(cluster, unit) for unit in (CONTROL_PLANE, *(node.name for node in cluster.nodes))}

    async def waits_for() -> str:
        try:
            reason = await waits()
        except NodewrightError as error:
            reason = str(error)
        if reason:
            for unit, count in before.items():
                fail_if_exiting(cluster, unit, count)
        return reason and f"not ready: {reason}"

    await until(waits_for, clock, timeout, obj=obj, step="wait until ready", action=action)


async def query_demo(cluster: Cluster, client: KubeClient, clock: Clock) -> list[DemoAnswer]:
    """Query the demo by ClusterIP (from a node), by DNS name (from a pod) and by NodePort (on every node).

    Raises Temporary, saying which way and why, when one of them does not reach pods on every node.
    """
    pods = await wait_pods(cluster, client, clock, "default", "app=demo", max(2, cluster.options.nodes))
    service = await client.get("/api/v1/namespaces/default/services/demo")
    node_of = {pod.name: pod.node for pod in pods}
    asker = _Asker(cluster, clock, node_of)
    first = cluster.nodes[0]
    net = cluster.namespace(first.name, "net")
    ways = [asker.cluster_ip(address, net, first.name) for address in service["spec"]["clusterIPs"]]
    ways.append(asker.name(pods[0]))
    ways += [asker.node_port(node.name, address) for node in cluster.nodes for address in node.addresses]
    return list(await asyncio.gather(*ways))


class _Asker:
    """Queries until pods on every node have answered, or says which did not."""

    def __init__(self, cluster: Cluster, clock: Clock, node_of: dict[str, str]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._node_of = node_of
        self._wanted = set(node_of.values())

    async def cluster_ip(self, address: str, net: str, node: str) -> DemoAnswer:
        async def once() -> Answers:
            return await ask(address, manifests.DEMO_PORT, "/hostname", net=net, want=len(self._node_of))

        return await self._collect(f"ClusterIP, from {node}", f"http://{in_url(address)}:{manifests.DEMO_PORT}", once)

    async def node_port(self, node: str, address: str) -> DemoAnswer:
        async def once() -> Answers:
            return await ask(address, manifests.DEMO_NODE_PORT, "/hostname", want=len(self._node_of))

        where = f"http://{in_url(address)}:{manifests.DEMO_NODE_PORT}"
        return await self._collect(f"NodePort on {node}, from this machine", where, once)

    async def name(self, pod: Pod) -> DemoAnswer:
        host = f"demo.default.svc.{self._cluster.domain}"
        query = {
            "host": host,
            "port": str(manifests.DEMO_PORT),
            "protocol": "http",
            "request": "hostname",
            "tries": "4",
        }
        net = self._cluster.namespace(pod.node, "net")

        async def once() -> Answers:
            # A resolver waits five seconds for a lost query: ask from the node first, with short timeouts.
            known = await ask(self._cluster.dns_service, 53, f"dns:{host}", net=net, times=200, seconds=10)
            if not known.bodies:
                return Answers((), f"DNS at {self._cluster.dns_service}: {known.error}")
            path = f"/dial?{urllib.parse.urlencode(query)}"
            raw = await ask(pod.address, 8080, path, net=net, times=1)
            bodies: list[str] = []
            error = raw.error
            for body in raw.bodies:
                answer = json.loads(body)
                bodies += answer.get("responses") or []
                error = "; ".join(answer.get("errors") or []) or error
            return Answers(tuple(bodies), error)

        return await self._collect(f"DNS name, from pod {pod.name}", f"http://{host}", once)

    async def _collect(
        self, way: str, address: str, once: Callable[[], Awaitable[Answers]], *, timeout: float = 30
    ) -> DemoAnswer:
        seen: dict[str, str] = {}

        async def waits_for() -> str:
            answers = await once()
            seen.update({body: self._node_of[body] for body in answers.bodies if body in self._node_of})
            missing = ", ".join(sorted(self._wanted - set(seen.values())))
            return missing and f"no answer from pods on {missing} ({answers.error or 'others answered'})"

        await until(
            waits_for,
            self._clock,
            timeout,
            obj=f"demo, {way}",
            step=f"GET {address}",
            action=f"{ours(self._cluster.name, 'status')} shows the nodes' daemons and logs.",
        )
        return DemoAnswer(way, address, tuple(sorted(seen)), tuple(sorted(set(seen.values()))))
