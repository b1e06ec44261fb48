"""One explanation for each object, from the answers of the agents and of the API server. Pure.

The answer of the pod's own node takes precedence. The API server adds what no node knows (scheduling, finalizers of a
pod that its node has released, workloads, claims, Services) and replaces, marked as such, a node that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from agent.explain.model import Explanation, Wait
from agent.explain.plan.document import from_json
from cli.explain.facts import Facts as EndpointFacts
from cli.explain.listening import Listening, blind
from cli.why.claims import claim
from cli.why.model import Explained, Facts, controller, namespace_of, pods_of, selected
from cli.why.nodes import nodes
from cli.why.pods import claim_waits, from_api
from cli.why.services import endpoint_facts, ingress, service
from cli.why.stop_reasons import corrected
from cli.why.targets import Target
from cli.why.workloads import cron_job, is_done_by, job, workload
from nodelib.json_values import Json
from policy.drops.plan.document import ReportedDrop

_WORKLOADS = ("deployment", "replicaset", "statefulset", "daemonset")


def everything(
    agents: Mapping[str, Iterable[Json]],
    facts: Facts,
    machines: Iterable[str] | None = None,
    look: Callable[[EndpointFacts], Listening] = blind,
) -> list[Explained]:
    """Pods first, then all else. `machines`: the nodes of a cluster of this machine, None for another cluster; `look`:
    how to learn who listens at an address."""
    pods = explained(agents, facts)
    here = {one.found.node for one in pods if one.by_node}
    expected = here if machines is None else {*machines, *here}
    return [*pods, *objects(facts, expected, look)]


def explained(agents: Mapping[str, Iterable[Json]], facts: Facts) -> list[Explained]:
    """Every pod that any agent or the API server knows, sorted by namespace and name."""
    by_uid = {one["uid"]: from_json(one) for listed in agents.values() for one in listed}
    found = {uid: Explained(one, True) for uid, one in by_uid.items()}
    for pod in facts.all("pod"):
        uid = pod["metadata"]["uid"]
        known = by_uid.get(uid)
        one = Explained(known, True) if known is not None else Explained(from_api(pod, facts), False)
        waits = [corrected(wait, pod, facts) for wait in one.found.waits]
        if known is not None and waits and known.phase == "Pending":
            waits += claim_waits(pod, facts)
        one = replace(one, found=_with(one.found, tuple(waits)))
        found[uid] = replace(one, owner=_owner(pod, facts), listed=not is_done_by(pod, facts))
    return _sorted(found.values())


def objects(
    facts: Facts, expected_nodes: Iterable[str], look: Callable[[EndpointFacts], Listening] = blind
) -> list[Explained]:
    """Everything but pods. `expected_nodes`: the machines that should be Nodes; `look`: as in everything()."""
    found = [one for kind in _WORKLOADS for one in (workload(kind, obj, facts) for obj in facts.all(kind))]
    found += [job(obj, facts) for obj in facts.all("job")]
    found += [cron_job(obj, facts) for obj in facts.all("cronjob")]
    found += [claim(obj, facts) for obj in facts.all("pvc")]
    known = endpoint_facts(facts)
    listening = look(known)
    found += [service(obj, facts, known, listening) for obj in facts.all("service")]
    found += [ingress(obj, facts) for obj in facts.all("ingress")]
    return [*nodes(expected_nodes, facts), *_sorted(found)]


def with_drops(found: list[Explained], drops: Iterable[ReportedDrop]) -> list[Explained]:
    """The same, with the packets from and to each pod that network policies refused, the newest first."""
    by_pod: dict[str, list[ReportedDrop]] = {}
    for drop in sorted(drops, key=lambda one: -one.last):
        for name in {drop.client.pod, drop.server.pod} - {""}:
            by_pod.setdefault(name, []).append(drop)
    return [
        replace(one, refused=tuple(by_pod.get(f"{one.found.namespace}/{one.found.name}", ())))
        if one.kind == "pod"
        else one
        for one in found
    ]


def matching(every: list[Explained], namespace: str, name: str) -> list[Explained]:
    """The pod with that name; if there is none, all whose names begin with it (a Deployment's pods)."""
    there = [one for one in every if one.kind == "pod" and one.found.namespace == namespace]
    exact = [one for one in there if one.found.name == name]
    return exact or [one for one in there if one.found.name.startswith(f"{name}-")]


def troubles(every: Iterable[Explained], namespace: str) -> list[Explained]:
    """What the list shows. `namespace` "" stands for all; Nodes belong to each."""
    return [
        one
        for one in every
        if one.listed and not one.is_well and (not namespace or one.kind == "node" or one.found.namespace == namespace)
    ]


def pods_in(every: Iterable[Explained], namespace: str | None) -> int:
    """How many pods there are; `namespace` None stands for all."""
    return sum(one.kind == "pod" and namespace in (None, one.found.namespace) for one in every)


def about(target: Target, every: list[Explained], facts: Facts) -> list[Explained]:
    """The object asked for, then its pods; empty when there is no such object."""
    if target.kind == "pod":
        return matching(every, target.namespace, target.name)
    namespace = "" if target.kind == "node" else target.namespace
    wanted = (target.kind, namespace, target.name)
    head = [one for one in every if (one.kind, one.found.namespace, one.found.name) == wanted]
    obj = facts.named(*wanted)
    if not head or obj is None:
        return head
    uids = {pod["metadata"]["uid"] for pod in _pods(target.kind, obj, facts)}
    return [*head, *(one for one in every if one.kind == "pod" and one.found.uid in uids)]


def _with(found: Explanation, waits: tuple[Wait, ...]) -> Explanation:
    if waits == found.waits:
        return found
    before = found.waits[0].error
    summary = found.summary.replace(before, waits[0].error) if before else found.summary
    return replace(found, waits=waits, summary=summary)


def _pods(kind: str, obj: Json, facts: Facts) -> list[Json]:
    match kind:
        case "service":
            return selected(obj, facts)
        case "pvc" | "ingress":
            return []
        case "node":
            name = obj["metadata"]["name"]
            return [one for one in facts.all("pod") if (one.get("spec") or {}).get("nodeName") == name]
    return pods_of(kind, obj, facts)


def _owner(pod: Json, facts: Facts) -> str:
    """The workload that a user has made: of a ReplicaSet its Deployment, of a Job its CronJob."""
    kind, name = controller(pod).get("kind"), controller(pod).get("name")
    if kind in ("ReplicaSet", "Job"):
        between = facts.named(str(kind).lower(), namespace_of(pod), str(name))
        above = controller(between) if between is not None else {}
        kind, name = above.get("kind") or kind, above.get("name") or name
    return f"{str(kind).lower()}/{name}" if kind and kind != "Node" else ""


def _sorted(found: Iterable[Explained]) -> list[Explained]:
    return sorted(found, key=lambda one: (one.found.namespace, one.found.name))
