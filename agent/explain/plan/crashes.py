"""Why a container ends again and again, and why a pod has failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.common.model.pods import ContainerState, RunState
from agent.common.plan import backoff
from agent.explain.model import Wait
from agent.explain.plan.exits import fatal_probe, last_message, out_of_memory, stopped_for
from agent.explain.plan.record import Record
from agent.explain.plan.waits import newest_failure, wait_for
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan.container_exits import how
from agent.pods.plan.restart_backoff import backoff_key
from nodelib.json_values import Json

_HOOK = "PostStartHookError"
_NEVER_STARTED = "StartError"  # containerd's reason


def crash_loop(record: Record, container: Json, on: str) -> Wait:
    name = container["name"]
    latest = record.seen.latest(name)
    if latest is None:
        return wait_for(record, on, "CrashLoopBackOff", container=name)
    restart_at = backoff.until(record.facts.backoff.get(backoff_key(container)), record.facts.ended_at(latest))
    begun = newest_failure(record, Activity(ActivityKind.ENDED, name))
    wait = wait_for(record, on, "CrashLoopBackOff", container=name, retry_at=restart_at, begun=begun)
    wait = replace(wait, tries=max(wait.tries, latest.attempt + 1))
    probe = fatal_probe(record, latest)
    if probe is not None and probe.outcome is not None:
        error = f"it is stopped because its {probe.kind.value.lower()} probe fails: {probe.outcome.output}"
        return replace(
            wait, error=error, action=record.action(f"{probe.kind.value}ProbeFailed", probe.outcome.output, name)
        )
    hook = _failed_hook(record, latest)
    if hook:
        return replace(wait, error=f"its postStart hook fails: {hook}", action=record.action(_HOOK, hook, name))
    error = _crash_error(record, latest)
    return replace(wait, error=error, action=_crash_action(record, latest, error))


def ended_for_its_hook(record: Record, container: Json, on: str) -> Iterator[Wait]:
    """A running container that is being ended because its postStart hook failed; the grace may be long."""
    latest = record.seen.latest(container["name"])
    hook = _failed_hook(record, latest) if latest is not None and latest.state is RunState.RUNNING else ""
    if hook:
        begun = newest_failure(record, Activity(ActivityKind.POST_START, container["name"]))
        text = f"its postStart hook failed, so it is being stopped: {hook}"
        yield wait_for(record, on, _HOOK, text, container=container["name"], begun=begun)


def failure(record: Record) -> Iterator[Wait]:
    """Why the pod has failed; it waits for nothing any more."""
    termination, status = record.facts.termination, record.status
    if termination is not None and termination.fails:
        text = ". ".join(part for part in (termination.message.strip().rstrip("."), record.refused_for) if part)
        yield Wait("", termination.reason, text, record.action(termination.reason, termination.message))
        return
    reason = str(status.get("reason") or record.pod.status.get("reason") or "")
    text = str(status.get("message") or record.pod.status.get("message") or "").strip()
    if reason:
        yield Wait("", reason, text, record.action(reason, text))
        return
    bad = next((one for one in record.seen.containers if one.state is RunState.EXITED and one.exit_code), None)
    if bad is not None:
        more = f": {last_message(bad)}" if bad.message else ""
        oom = bad.reason == "OOMKilled"
        action = out_of_memory(record, bad.name) if oom else record.action("Failed", "", bad.name)
        yield Wait("", "Failed", f"container {bad.name} ended with {how(bad)}{more}", action, bad.finished_at / 1e9)


def _failed_hook(record: Record, latest: ContainerState) -> str:
    """What its postStart hook said, if this attempt was ended for it."""
    what = Activity(ActivityKind.POST_START, latest.name)
    for one in reversed(record.timeline):
        if one.what == what and one.outcome != "ok" and max(one.at, one.last_at) >= latest.started_at / 1e9 - 1:
            return one.outcome
    return ""


def _crash_error(record: Record, latest: ContainerState) -> str:
    if note := stopped_for(record, latest):
        return note
    if latest.reason == _NEVER_STARTED:
        return f"it cannot be started: {last_message(latest)}"
    error = f"it ended with {how(latest)}" if latest.exit_code else "it exits by itself with exit code 0"
    return f"{error}: {last_message(latest)}" if latest.message else error


def _crash_action(record: Record, latest: ContainerState, error: str) -> str:
    name = latest.name
    if latest.reason == "OOMKilled":
        return out_of_memory(record, name)
    if latest.reason == _NEVER_STARTED:
        return record.action("RunContainerError", error, name)
    reason = "CrashLoopBackOff" if latest.exit_code or stopped_for(record, latest) else "EndsByItself"
    return record.action(reason, f"exit code {latest.exit_code}", name)
