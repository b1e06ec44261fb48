"""Why a pod is not running, not ready or not gone: explain(record) -> Explanation.

What the pod waits for is read from the facts that its next plan is made from, never guessed: a failure is the step
that failed, a pause is the back-off in effect. Only the advice is looked up, in remedies.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.common.model.pods import Kind
from agent.common.model.states import ImagePhase
from agent.common.plan.restart import is_sidecar
from agent.explain.model import Explanation, TimelineLine, Wait
from agent.explain.plan.crashes import crash_loop, ended_for_its_hook, failure
from agent.explain.plan.exits import ends
from agent.explain.plan.record import Record
from agent.explain.plan.waits import failed_step, newest_failure, wait_for
from agent.images.model.pulls import PullProgress
from agent.images.plan.images import pull_policy
from agent.images.plan.pull_progress import progress_text
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan.container_exits import how
from agent.pods.plan.container_status import LISTED
from agent.pods.plan.termination import seconds_left
from agent.probes.model import ProbeKind
from nodelib.json_values import Json
from nodelib.kube.times import time_or_none

_STEP_OF = {
    "FailedMount": "volumes",
    "FailedCreatePodContainer": "cgroup",
    "FailedCreatePodSandBox": "sandbox",
    "FailedKillPod": "end",
    "FailedDelete": "API server",
}


def explain(record: Record) -> Explanation:
    """The explanation of the pod, without its resource costs."""
    pod = record.pod
    phase = str(record.status.get("phase") or pod.status.get("phase") or "Pending")
    over = failure(record) if phase == "Failed" else ()
    waits = (*over, *(_termination_waits(record) if record.facts.termination is not None else _waits(record)))
    return Explanation(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=record.node,
        phase=phase,
        summary=_summary(record, phase, waits),
        waits=waits,
        ends=tuple(ends(record)),
        timeline=tuple(_line(one) for one in (*record.timeline, *record.under_way)),
    )


def _line(entry: TimelineEntry) -> TimelineLine:
    return TimelineLine(
        at=entry.at,
        step=entry.what.words,
        seconds=entry.seconds,
        outcome=entry.outcome,
        of=entry.of.words if entry.of else "",
        note=entry.note,
        times=entry.times,
        last_at=entry.last_at,
        kind=entry.what.kind.value,
        container=entry.what.container,
        attempt=entry.attempt,
        of_kind=entry.of.kind.value if entry.of else "",
        volume=entry.what.volume,
    )


def _summary(record: Record, phase: str, waits: tuple[Wait, ...]) -> str:
    termination = record.facts.termination
    if waits and not waits[0].on:
        return f"{phase}: {waits[0].reason}: {waits[0].error}"
    if termination is not None:
        what = "Terminating" if termination.cause.value != "finished" else phase
        stops = [one.what.container for one in record.under_way if one.what.kind is ActivityKind.STOP]
        if stops:  # the plan's own words are as old as the plan
            left = seconds_left(termination, record.facts.now)
            return f"{what}: {', '.join(stops)}: stopping, {left} s of grace left"
        return f"{what}: {record.plan.reason or waits[0].reason}" if waits or record.plan.reason else what
    if waits:
        first = waits[0]
        more = first.error or first.progress
        return f"{phase}, waits on {first.on}: {first.reason}" + (f": {more}" if more else "")
    if phase == "Running":
        return "Running and ready"
    return f"{phase}: {record.plan.reason}" if record.plan.reason else phase


def _waits(record: Record) -> Iterator[Wait]:
    if record.facts.blocked is not None:
        yield failed_step(record, _STEP_OF.get(record.facts.blocked.reason, "pod"), record.facts.blocked)
    elif record.node_problems and not record.seen.sandboxes and not record.pod.host_network:
        text = "; ".join(record.node_problems)
        yield wait_for(record, "network", "NetworkNotReady", text, retry_at=record.plan.wait_until)
    statuses = {one["name"]: one for listed in LISTED.values() for one in record.status.get(listed) or []}
    found_any = False
    for kind, container in record.pod.containers():
        found = list(_container_waits(record, kind, container, statuses.get(container["name"]) or {}))
        found_any = found_any or bool(found)
        yield from found
    if record.facts.blocked is None and not found_any:
        yield from _steps_under_way(record)
    yield from _gates(record)
    if record.limited:
        yield wait_for(record, "connections", "ConnectionsLimited", record.limited)


def _container_waits(record: Record, kind: Kind, container: Json, status: Json) -> Iterator[Wait]:
    name = container["name"]
    state: Json = status.get("state") or {}
    if "waiting" in state:
        yield from _not_started(record, container, state["waiting"])
    elif "running" in state and kind is not Kind.EPHEMERAL:
        yield from _unready(record, kind, container, status)
    elif "terminated" in state and kind is Kind.INIT and state["terminated"].get("exitCode"):
        latest = record.seen.latest(name)
        yield wait_for(record, f"init container {name}", "Failed", how(latest) if latest else "", container=name)


def _not_started(record: Record, container: Json, waiting: Json) -> Iterator[Wait]:
    name, reason = container["name"], str(waiting.get("reason", ""))
    on, message = f"container {name}", str(waiting.get("message", ""))
    failure, image = record.facts.failures.get(name), record.facts.images.get(name)
    if reason == "CrashLoopBackOff":
        yield crash_loop(record, container, on)
    elif failure is not None:
        yield failed_step(record, on, failure, name)
    elif image is not None and image.phase is ImagePhase.FAILED:
        yield wait_for(
            record,
            f"image of {on}",
            reason,
            message,
            container=name,
            retry_at=image.retry_at,
            begun=newest_failure(record, Activity(ActivityKind.PULL, name), Activity(ActivityKind.IMAGE, name)),
            pull_policy=pull_policy(container),
        )
    elif image is not None and image.phase is ImagePhase.PULLING:
        yield _pulling(record, f"image of {on}", name)
    elif reason in ("PodInitializing", "ContainerCreating"):
        yield from ended_for_its_hook(record, container, on)
    else:
        yield wait_for(record, on, reason, message, container=name, pull_policy=pull_policy(container))


def _pulling(record: Record, on: str, key: str) -> Wait:
    pulls = (one for one in record.under_way if one.what.kind is ActivityKind.PULL)
    began = next((one for one in pulls if one.what.image_key == key), None)
    pull = record.pulls.get(key, PullProgress())
    share = min(1.0, pull.done / pull.total) if pull.total else None
    return Wait(on, "Pulling", since=began.at if began else None, progress=progress_text(pull), share=share)


def _unready(record: Record, kind: Kind, container: Json, status: Json) -> Iterator[Wait]:
    name = container["name"]
    if kind is Kind.INIT and not is_sidecar(kind, container):
        since = (status["state"]["running"] or {}).get("startedAt")
        text = "it has not ended yet"
        action = record.action("Running", text, name)
        yield Wait(f"init container {name}", "Running", text, action, time_or_none(since))
        return
    for one in record.probes:
        if one.container != name or not (one.outcome is None or one.fails):
            continue
        # `ready` and `started` do not depend on liveness probes, so a failing one counts once it has answered.
        if one.outcome is None if one.kind is ProbeKind.LIVENESS else status.get("ready"):
            continue
        if one.kind is ProbeKind.READINESS and not status.get("started"):
            continue
        reason = f"{one.kind.value}ProbeFailed" if one.outcome is not None else f"{one.kind.value}ProbePending"
        text = one.outcome.output or _WORDLESS if one.outcome is not None else "no answer yet"
        tries = one.times if one.outcome is not None else 0
        action = record.action(reason, text, name)
        yield Wait(f"container {name}", reason, text, action, one.since, one.at + one.period, tries)


_WORDLESS = "its command failed and printed nothing"  # the other kinds of probes always say something


def _gates(record: Record) -> Iterator[Wait]:
    conditions = {one.get("type"): one for one in record.status.get("conditions") or []}
    ready = conditions.get("Ready") or {}
    if ready.get("reason") == "ReadinessGatesNotReady":
        since = ready.get("lastTransitionTime")
        wait = wait_for(record, "readiness gates", "ReadinessGatesNotReady", str(ready.get("message", "")))
        yield replace(wait, since=time_or_none(since))


def _steps_under_way(record: Record) -> Iterator[Wait]:
    parents = {one.of for one in record.under_way}
    for one in record.under_way:
        what = one.what
        if what.kind is ActivityKind.PULL:
            on = f"image of volume {what.volume}" if what.volume else f"image of container {what.container}"
            yield _pulling(record, on, what.image_key)
        elif what not in parents:
            yield Wait(what.words, "UnderWay", since=one.at)


def _termination_waits(record: Record) -> Iterator[Wait]:
    termination = record.facts.termination
    if termination is None:
        return
    if record.facts.blocked is not None:
        yield failed_step(record, _STEP_OF.get(record.facts.blocked.reason, "end"), record.facts.blocked)
    hooks = {one.of: one for one in record.under_way if one.what.kind is ActivityKind.PRE_STOP}
    for one in record.under_way:
        if one.what.kind is ActivityKind.STOP:
            name, hook = one.what.container, hooks.get(one.what)
            text = "its preStop hook is running" if hook else "it was sent SIGTERM and is still running"
            until = record.facts.shown(termination.since + termination.grace)
            action = record.action("Stopping", text, name)
            yield Wait(f"container {name}", "Stopping", text, action, hook.at if hook else one.at, until)
    if not record.facts.blocked:
        for one in record.under_way:
            if one.what.kind in (ActivityKind.STOP_SANDBOX, ActivityKind.RELEASE, ActivityKind.CONFIRM):
                yield Wait(one.what.words, "UnderWay", since=one.at)
    finalizers = record.pod.meta.get("finalizers")
    if record.facts.confirmed and finalizers:
        yield wait_for(record, "finalizers", "Finalizers", ", ".join(finalizers))
