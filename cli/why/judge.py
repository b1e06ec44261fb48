"""One explanation for each pod, from the answers of the agents and of the API server. Pure.

The answer of the pod's own node takes precedence. The API server adds what no node knows (scheduling, finalizers of a
pod that its node has released) and replaces, marked as such, a node that does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.explain.model import Explanation, TimelineLine, Wait
from agent.explain.plan.document import from_json
from agent.explain.plan.remedies import Subject, action_for
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339

_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_ON_THE_WAY = {"ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class Explained:
    """One pod's explanation. `by_node`: it is its node's answer, not only the API server's."""

    found: Explanation
    by_node: bool

    @property
    def is_well(self) -> bool:
        return not self.found.waits and self.found.phase in ("Running", "Succeeded")


def explained(
    agents: Mapping[str, Iterable[Json]], pods: Iterable[Json] | None, events: Iterable[Json]
) -> list[Explained]:
    """Every pod that any agent or the API server knows, sorted by namespace and name."""
    by_uid = {one["uid"]: from_json(one) for listed in agents.values() for one in listed}
    found = {uid: Explained(one, True) for uid, one in by_uid.items()}
    listed_events = list(events)
    for pod in pods or ():
        uid = pod["metadata"]["uid"]
        known = by_uid.get(uid)
        own = [one for one in listed_events if (one.get("involvedObject") or {}).get("uid") == uid]
        found[uid] = Explained(known, True) if known is not None else Explained(from_api(pod, own), False)
    return sorted(found.values(), key=lambda one: (one.found.namespace, one.found.name))


def matching(every: list[Explained], namespace: str, name: str) -> list[Explained]:
    """The pod with that name; if there is none, all whose names begin with it (a Deployment's pods)."""
    there = [one for one in every if one.found.namespace == namespace]
    exact = [one for one in there if one.found.name == name]
    return exact or [one for one in there if one.found.name.startswith(f"{name}-")]


def from_api(pod: Json, events: Iterable[Json]) -> Explanation:
    """What the API server alone knows; its events are the timeline."""
    meta, status = pod["metadata"], pod.get("status") or {}
    node, phase = (pod.get("spec") or {}).get("nodeName", ""), str(status.get("phase", "Pending"))
    waits = tuple(_api_waits(pod, status, node))
    summary = "Running and ready" if phase == "Running" and not waits else phase
    if waits:
        summary = f"{phase}, waits on {waits[0].on}: {waits[0].reason}"
    timeline = sorted((_happening(one) for one in events), key=lambda one: one.at)
    return Explanation(
        meta.get("namespace", ""), meta["name"], meta["uid"], node, phase, summary, waits, (), tuple(timeline)
    )


def _api_waits(pod: Json, status: Json, node: str) -> Iterator[Wait]:
    meta = pod["metadata"]
    subject = Subject(meta.get("namespace", ""), meta["name"])
    conditions = {one["type"]: one for one in status.get("conditions") or []}
    if meta.get("deletionTimestamp"):
        yield from _deleted_waits(meta, subject, node)
        return
    if not node:
        found = conditions.get("PodScheduled") or {}
        reason, text = found.get("reason") or "NotScheduledYet", str(found.get("message", ""))
        yield Wait("scheduler", reason, text, action_for(reason, text, subject), _time(found.get("lastTransitionTime")))
        return
    for listed in _STATUSES:
        for one in status.get(listed) or []:
            waiting = (one.get("state") or {}).get("waiting") or {}
            reason, text = str(waiting.get("reason", "")), str(waiting.get("message", ""))
            if reason and reason not in _ON_THE_WAY:
                about = Subject(subject.namespace, subject.pod, one["name"])
                yield Wait(f"container {one['name']}", reason, text, action_for(reason, text, about))
    ready = conditions.get("Ready") or {}
    if ready.get("status") == "False" and ready.get("reason") not in ("PodCompleted", "PodFailed"):
        reason, text = str(ready.get("reason", "NotReady")), str(ready.get("message", ""))
        yield Wait("readiness", reason, text, action_for(reason, text, subject), _time(ready.get("lastTransitionTime")))


def _deleted_waits(meta: Json, subject: Subject, node: str) -> Iterator[Wait]:
    asked = _time(meta["deletionTimestamp"])
    since = asked - float(meta.get("deletionGracePeriodSeconds") or 0) if asked is not None else None
    if meta.get("finalizers"):
        names = ", ".join(meta["finalizers"])
        yield Wait("finalizers", "Finalizers", names, action_for("Finalizers", names, subject), since)
    if node and meta.get("deletionGracePeriodSeconds"):
        text = f"node {node} has not released it yet, or cannot be asked from here"
        yield Wait(f"node {node}", "Terminating", text, f"Run `nodewright why` on {node}.", since)


def _happening(event: Json) -> TimelineLine:
    at = _time(event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
    last = _time(event.get("lastTimestamp")) or at or 0.0
    good = event.get("type") == "Normal"
    text = str(event.get("message", ""))
    return TimelineLine(
        at or 0.0,
        str(event.get("reason", "")),
        seconds=0.0,
        outcome="ok" if good else text,
        note=text if good else "",
        times=int(event.get("count") or 1),
        last_at=last,
    )


def _time(text: str | None) -> float | None:
    return parse_rfc3339(text) if text else None
