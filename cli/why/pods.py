"""What the API server alone knows of a pod, for pods whose node does not answer here or that have none. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from agent.explain.model import Explanation, Wait
from agent.explain.plan.remedies import Subject, action_for
from agent.images.model.pulls import UnreadSecret
from agent.images.plan.images import pull_policy
from cli.why import scheduling
from cli.why.claims import claim, claims_of, waiting
from cli.why.findings import at_time, timeline
from cli.why.model import Facts, condition, namespace_of, spec_of, status_of
from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.text import one_line

_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_UNREAD = re.compile(r"Unable to retrieve some image pull secrets \((.*)\);")
_SPECS = ("initContainers", "containers", "ephemeralContainers")
_ON_THE_WAY = {"ContainerCreating", "PodInitializing"}
_TEXT = 2000  # bytes of one text of the API
_CLAIMS = 20  # that wait and are named with a pod, which may have thousands


def from_api(pod: Json, facts: Facts) -> Explanation:
    """What the API server alone knows; its events are the timeline."""
    meta, status = pod["metadata"], status_of(pod)
    node, phase = str(spec_of(pod).get("nodeName") or ""), str(status.get("phase") or "Pending")
    waits = tuple(_waits(pod, status, node, facts))
    summary = "Running and ready" if phase == "Running" and not waits else phase
    if waits:
        summary = (
            f"{phase}, waits on {waits[0].on}: {waits[0].reason}" if waits[0].on else f"{phase}: {waits[0].reason}"
        )
    lines = timeline(facts.events(pod))
    return Explanation(namespace_of(pod), meta["name"], meta["uid"], node, phase, summary, waits, (), lines)


def claim_waits(pod: Json, facts: Facts) -> Iterator[Wait]:
    """What the claims of the pod wait for, of the first ones: each has an explanation of its own."""
    used = (waiting(namespace_of(pod), name, facts) for name in sorted(claims_of(pod)))
    for found in islice((one for one in used if one is not None), _CLAIMS):
        for wait in claim(found, facts).found.waits:
            yield Wait(f"claim {found['metadata']['name']}", wait.reason, wait.error, wait.action, wait.since)


def _waits(pod: Json, status: Json, node: str, facts: Facts) -> Iterator[Wait]:
    meta, phase = pod["metadata"], status.get("phase")
    subject = Subject(namespace_of(pod), meta["name"])
    if meta.get("deletionTimestamp"):
        yield from _deleted(meta, subject, node)
    elif phase == "Failed":
        yield _failed(pod, status, subject)
    elif not node:
        yield from _unscheduled(pod, subject, facts)
    elif "node" in facts.lists and facts.named("node", "", node) is None:
        text = f"there is no Node {node}"
        yield Wait(f"node {node}", "NodeGone", text, action_for("NodeGone", text, subject))
    elif phase != "Succeeded":
        yield from _containers(pod, status, _unread_secrets(pod, facts))
        yield from _readiness(pod, subject)


def _unscheduled(pod: Json, subject: Subject, facts: Facts) -> Iterator[Wait]:
    found = condition(pod, "PodScheduled")
    reason, text = str(found.get("reason") or "NotScheduledYet"), _text(found.get("message"))
    named = str(spec_of(pod).get("schedulerName") or "default-scheduler")
    if not found and named != "default-scheduler":
        reason, text = "NoScheduler", f'no scheduler called "{named}" has looked at it'
    if not found and (claims := scheduling.missing_claims(pod)):
        reason, text = (
            "NoResourceClaim",
            f"it waits for ResourceClaim {claims}, which does not exist or has no device yet",
        )
    action = scheduling.advice(text, pod, facts) or action_for(reason, text, subject)
    made = found.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
    yield Wait("scheduler", reason, text, action, at_time(made))
    yield from claim_waits(pod, facts)


def _unread_secrets(pod: Json, facts: Facts) -> tuple[UnreadSecret, ...]:
    """The pull secrets that the kubelet said it could not read. Whether they are there by now it does not say."""
    wanted = dict.fromkeys(str(one.get("name")) for one in objects_in(spec_of(pod).get("imagePullSecrets")))
    named = set[str]()
    for event in facts.events(pod) if wanted else ():
        if event.get("reason") == "FailedToRetrieveImagePullSecret":
            for listed in _UNREAD.findall(str(event.get("message") or "")):
                named.update(one.partition(":")[0] for one in listed.split(", "))
    return tuple(UnreadSecret(name, "") for name in wanted if name in named)


def _containers(pod: Json, status: Json, unread: tuple[UnreadSecret, ...]) -> Iterator[Wait]:
    policies = {str(one.get("name")): pull_policy(one) for kind in _SPECS for one in objects_in(spec_of(pod).get(kind))}
    for listed in _STATUSES:
        for one in objects_in(status.get(listed)):
            state = object_or_empty(one.get("state"))
            waiting = object_or_empty(state.get("waiting"))
            reason, text = str(waiting.get("reason") or ""), _text(waiting.get("message"))
            if not reason or reason in _ON_THE_WAY:
                continue
            name = str(one.get("name"))
            about = Subject(namespace_of(pod), pod["metadata"]["name"], name, policies.get(name, ""), unread)
            last = object_or_empty(object_or_empty(one.get("lastState")).get("terminated"))
            if reason == "CrashLoopBackOff" and last:
                text = _ended(last)
            why = "OOMKilled" if last.get("reason") == "OOMKilled" else reason
            tries = int(one.get("restartCount") or 0)
            yield Wait(f"container {about.container}", reason, text, action_for(why, text, about), tries=tries)


def _ended(terminated: Json) -> str:
    code, reason = terminated.get("exitCode"), str(terminated.get("reason") or "")
    text = f"it ended with exit code {code}" if code else "it exits by itself with exit code 0"
    text += f" ({reason})" if reason not in ("", "Error", "Completed") else ""
    return f"{text}: {_text(terminated.get('message'))}" if terminated.get("message") else text


def _failed(pod: Json, status: Json, subject: Subject) -> Wait:
    """It waits for nothing any more."""
    for listed in _STATUSES[:2]:
        for one in objects_in(status.get(listed)):
            ended = object_or_empty(object_or_empty(one.get("state")).get("terminated"))
            if ended.get("exitCode") and not status.get("reason"):
                about = Subject(subject.namespace, subject.pod, str(one.get("name")))
                text = _ended(ended).replace("it ended", f"container {about.container} ended")
                return Wait("", "Failed", text, action_for("Failed", text, about), at_time(ended.get("finishedAt")))
    reason, text = str(status.get("reason") or "Failed"), _text(status.get("message"))
    return Wait("", reason, text, action_for(reason, text, subject))


def _readiness(pod: Json, subject: Subject) -> Iterator[Wait]:
    ready = condition(pod, "Ready")
    if ready.get("status") == "False" and ready.get("reason") not in ("PodCompleted", "PodFailed"):
        reason, text = str(ready.get("reason") or "NotReady"), _text(ready.get("message"))
        since = at_time(ready.get("lastTransitionTime"))
        yield Wait("readiness", reason, text, action_for(reason, text, subject), since)


def _deleted(meta: Json, subject: Subject, node: str) -> Iterator[Wait]:
    asked = at_time(meta["deletionTimestamp"])
    since = asked - float(meta.get("deletionGracePeriodSeconds") or 0) if asked is not None else None
    if meta.get("finalizers"):
        names = _text(", ".join(meta["finalizers"]))
        yield Wait("finalizers", "Finalizers", names, action_for("Finalizers", names, subject), since)
    if node and meta.get("deletionGracePeriodSeconds"):
        text = f"node {node} has not released it yet, or cannot be asked from here"
        yield Wait(f"node {node}", "Terminating", text, f"Run `nodewright why` on {node}.", since)


def _text(value: object) -> str:
    return one_line(str(value or ""), _TEXT)
