"""What the page of `nodewright view` says beside the objects: `why`, `service`, `trace` and the nodes' own answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from agent.explain.model import End
from agent.explain.plan.document import from_json, usable
from cli.commands import service, trace
from cli.commands.view.drops import follow
from cli.commands.view.node import Averages, news_of, work_of
from cli.commands.view.wiring import Wirings
from cli.explain import paths_text, reasons, service_text, service_words
from cli.explain.endpoints import ports
from cli.explain.facts import Facts, key, title
from cli.explain.listening import unknown
from cli.explain.problems import Problem
from cli.explain.walk import Leg, Path
from cli.policies.applying import Applying
from cli.policies.keys import policy_keys
from cli.policies.sources import NOT_ENFORCED
from cli.why import judge, logs
from cli.why.claims import claims_of
from cli.why.model import Explained, LogTail, namespace_of, spec_of
from cli.why.model import Facts as WhyFacts
from cli.why.recorded import as_steps
from cli.why.sources import Sources, asked, sockets
from cli.why.wording import Wording
from controlplane.cluster.model import CLUSTER_DOMAIN, Cluster
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.firewall.trace_model import Hop as TracedHop
from nodelib.firewall.trace_model import endpoint_text
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.listing import listed
from view.model.network import Applied, Enforced, Hop, ServiceSaid, Traced, Way, Wired
from view.model.network import Leg as ShownLeg
from view.model.nodes import NodeWork
from view.model.objects import NODE, POD, POLICY, SERVICE, SLICE, Question, Stores
from view.model.pods import Cost, Wait, Why
from view.ports import Refusals

_CLAIMS = 500
_KEPT = 31  # pods beside the newest one of which that is remembered
_TRACES = 2  # at the same time: each reads the rules of every node


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the API server said beside a pod when it was last asked."""

    lists: Mapping[str, tuple[Json, ...]]
    logs: tuple[LogTail, ...]


class ClusterAnswers:
    """`cluster` None: a machine that only has a kubeconfig, and perhaps runs an agent."""

    def __init__(self, cluster: Cluster | None, client: KubeClient, kubeconfig: str, wording: Wording) -> None:
        self._cluster, self._client, self._kubeconfig, self._wording = cluster, client, kubeconfig, wording
        self._traces = asyncio.Semaphore(_TRACES)
        self._wirings, self._applying = Wirings(cluster), Applying()
        self._averages = Averages(cluster)
        self._leases: tuple[Json, ...] | None = None
        self._kept: dict[str, _Kept] = {}  # by pod's uid

    async def why(self, pod: Json, events: Sequence[Json], *, only_node: bool = False) -> Why:
        """The answer of the pod's own node, or what the API server alone knows."""
        uid, node = pod["metadata"]["uid"], str(spec_of(pod).get("nodeName") or "")
        kept = self._kept.get(uid) if only_node else None
        document, lists = await asyncio.gather(self._document(pod), self._claims(pod, kept))
        agents = {node: [document]} if document is not None else {}
        facts = WhyFacts({"pod": (pod,), "event": tuple(events), **lists})
        explained = next(one for one in judge.explained(agents, facts) if one.found.uid == uid)
        if not explained.is_well:
            explained = replace(explained, logs=kept.logs if kept is not None else await self._logs(pod))
        self._kept = {**dict(list(self._kept.items())[-_KEPT:]), uid: _Kept(lists, explained.logs)}
        return _why(explained, self._wording)

    async def costs(self, pod: Json) -> tuple[Cost, ...]:
        document = await self._document(pod)
        found = from_json(document).costs if document is not None else ()
        return tuple(Cost(one.of, one.text, one.metrics, one.action) for one in found)

    async def averages(self, node: str) -> Mapping[str, float]:
        return await self._averages.of(node)

    async def _document(self, pod: Json) -> Json | None:
        """What the agent of its node knows of the pod; None where none answers that knows this very pod."""
        meta, node = pod["metadata"], str(spec_of(pod).get("nodeName") or "")
        ways = sockets(self._cluster)
        socket = ways.get(node, "") if self._cluster is not None else next(iter(ways.values()), "")
        document = usable((await asked(socket, f"/why/{meta['namespace']}/{meta['name']}"))[0])
        return document if document is not None and document["uid"] == meta["uid"] else None

    async def service(self, found: Json, stores: Stores) -> ServiceSaid:
        """What `nodewright service` prints; without the nodes, what the API server knows."""
        known = Facts.of(*(stores[kind].values() for kind in (SERVICE, SLICE, POD, NODE)))
        if self._cluster is None or os.geteuid() != 0:
            return await asyncio.to_thread(_without_nodes, found, known, self._wording)
        # Who announces an address is in Leases, which are not watched here: the command reads them itself.
        mine = None if spec_of(found).get("type") == "LoadBalancer" else replace(known, cluster=self._cluster.name)
        seen = await service.look(self._cluster, title(found), "default", known=mine)
        lines = await asyncio.to_thread(lambda: tuple(service.lines(replace(seen, problems=()))))
        return ServiceSaid(lines, _problems(seen.problems))

    async def node(self, name: str) -> NodeWork:
        """What the node is at, by its own answers."""
        return await work_of(self._cluster, name)

    async def wired(self, node: str, stores: Stores) -> Wired:
        known = Facts.of(*(stores[kind].values() for kind in (SERVICE, SLICE, POD, NODE)))
        return await self._wirings.node(node, known)

    async def policy(self, policy: Json, stores: Stores) -> Enforced:
        """Raises Temporary where policies are not enforced, Permanent where the kernels cannot be read."""
        if self._cluster is not None and not self._cluster.options.enforces_policies:
            raise Temporary(NOT_ENFORCED, action="Make the cluster anew with `up`, without that option.")
        nodes = [name for _, name in stores[NODE]]
        if policy["metadata"].get("namespace"):
            return await self._wirings.policy(policy, nodes)
        return await self._wirings.cluster_policy(policy, nodes)

    def applied_to(
        self, pod: Json, policies: Iterable[Json], above: Iterable[Json], space: Json | None
    ) -> Sequence[Applied]:
        return self._applying(pod, policies, above, space)

    def news_of(self, name: str, on_change: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return news_of(self._cluster, name, on_change)

    async def refused(self, taker: Refusals) -> None:
        await follow(self._cluster, taker)

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        """Raises Permanent where the rules of the nodes cannot be read."""
        if self._cluster is None or os.geteuid() != 0:
            raise Permanent(
                "the rules of the nodes are in their kernels, and no node of `up` is on this machine that may be read",
                step="trace a packet",
                action="Run it as root on the machine where `./nodewright up` made the nodes.",
            )
        known = self._known(self._cluster, stores) if stores is not None else None
        async with self._traces:
            walked = await trace.walk_of(self._cluster, asked.source, asked.to, protocol=asked.protocol, known=known)
        self._leases = walked.facts.leases
        verdict = paths_text.verdict(
            walked.sender, walked.target, walked.paths, walked.facts, walked.node, self._cluster.name
        )
        to = walked.facts.named(endpoint_text(walked.target.address, walked.target.port))
        return Traced(
            tuple(verdict),
            walked.facts.named(walked.sender.address),
            f"{to}/{walked.target.protocol}",
            tuple(_way(path, walked.facts) for path in walked.paths),
            (*walked.target.notes, *walked.notes),
        )

    def _known(self, cluster: Cluster, stores: Stores) -> Facts | None:
        """What the watches have, with the Leases of the last walk, which are not watched; None before there was one."""
        if self._leases is None:
            return None
        kinds = (stores[kind].values() for kind in (SERVICE, SLICE, POD, NODE, POLICY))
        facts = replace(Facts.of(*kinds), leases=self._leases, cluster=cluster.name)
        return replace(facts, enforced=cluster.options.enforces_policies)

    async def _claims(self, pod: Json, kept: _Kept | None = None) -> Mapping[str, tuple[Json, ...]]:
        """The claims of the pod's namespace and the StorageClasses, for a pod that uses claims."""
        if kept is not None:
            return kept.lists
        if not claims_of(pod):
            return {}
        try:
            claims, classes = await asyncio.gather(
                listed(self._client, f"/api/v1/namespaces/{namespace_of(pod)}/persistentvolumeclaims", _CLAIMS),
                listed(self._client, "/apis/storage.k8s.io/v1/storageclasses", _CLAIMS),
            )
        except NodewrightError:
            return {}  # perhaps this user may not; the rest of the answer is worth having
        return {"pvc": claims.items, "storageclass": classes.items}

    async def _logs(self, pod: Json) -> tuple[LogTail, ...]:
        async with Sources(self._cluster, self._kubeconfig) as sources:
            wanted = logs.wanted(pod)
            said = await asyncio.gather(*(sources.log(one) for one in wanted))
        tails = (logs.tail(one.container, text) for one, text in zip(wanted, said, strict=True))
        return tuple(one for one in tails if one is not None)


def _why(explained: Explained, wording: Wording) -> Why:
    found = wording.advised(explained.found)
    waits = tuple(
        Wait(
            f"waits on {one.on}: {one.reason}" if one.on else f"it is over: {one.reason}",
            "; ".join(filter(None, (one.error, one.progress, f"tried {one.tries} times" if one.tries > 1 else ""))),
            one.action,
            one.since or 0.0,
            one.share,
        )
        for one in found.waits
    )
    tails = tuple((one.container, one.lines) for one in explained.logs)
    return Why(
        found.summary,
        explained.is_well,
        explained.by_node,
        waits,
        tuple(_ends(found.ends)),
        tails,
        as_steps(found.timeline) if explained.by_node else (),
    )


def _ends(ends: Iterable[End]) -> Iterable[str]:
    for one in ends:
        how = "exit code 0" if one.how == "ok" else one.how
        times = f", {one.times} times so far" if one.times > 1 else ""
        yield f"container {one.container} ended{times}: {how}" + (f": {one.why}" if one.why else "")


def _problems(every: Iterable[Problem]) -> tuple[tuple[str, str], ...]:
    return tuple((one.text, one.action) for one in every)


def _without_nodes(found: Json, facts: Facts, wording: Wording) -> ServiceSaid:
    problems = service_words.problems(found, facts, unknown, CLUSTER_DOMAIN)
    typed = (replace(one, action=wording.typed(one.action)) for one in problems)
    return ServiceSaid(tuple(_by_the_api(found, facts)), _problems(typed))


def _by_the_api(found: Json, facts: Facts) -> Iterable[str]:
    yield from service_text.head(found, service_words.about(found, facts, CLUSTER_DOMAIN), ())
    if service_words.is_headless(found):
        yield from service_text.endpoints(found, facts, ())
    names = [key(one)[1] for one in facts.nodes]
    yield from service_text.ports({node: ports(found, facts, node) for node in names}, ())
    yield ""
    yield "(By the objects of the API server alone: the rules and listeners of the nodes cannot be read from here.)"


def _way(path: Path, facts: Facts) -> Way:
    return Way(path.arrived, paths_text.end_of(path, facts), tuple(_leg(one, facts) for one in path.legs))


def _meaning(hop: TracedHop, facts: Facts) -> str:
    """ "" for a mere jump, which is seen among all rules."""
    found = reasons.reason(hop, facts)
    return "" if found.startswith("jump to ") else found


def _leg(leg: Leg, facts: Facts) -> ShownLeg:
    hops = tuple(
        Hop(
            one.table,
            one.chain,
            one.text,
            _meaning(one, facts),
            one.packets,
            reasons.decides(one),
            one.certain,
            policy_keys(one.chain, reasons.comment_of(one)),
        )
        for one in leg.outcome.trail
    )
    return ShownLeg(
        leg.node,
        leg.packet.interface,
        facts.named(leg.packet.source),
        facts.named(endpoint_text(leg.packet.destination, leg.packet.port)),
        hops,
        paths_text.routed(leg, facts) if leg.outcome.verdict == "ACCEPT" else "",
        paths_text.leg_end(leg, facts),
        leg.outcome.verdict in ("DROP", "REJECT"),
    )
