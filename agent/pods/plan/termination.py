"""How a pod is terminated: what is still to be stopped, released and removed, in that order.

Follows SyncTerminatingPod and SyncTerminatedPod of pkg/kubelet/kubelet.go: containers (sidecars after the main ones,
the last sidecar first), sandbox, volumes and cgroup, the last status, the deletion of the object, the records in the
runtime. Each is seen done before the next begins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Set as AbstractSet
from dataclasses import replace

from agent.common.model.labels import PRE_STOP
from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState
from agent.common.plan.restart import MINIMUM_GRACE, grace_seconds, is_sidecar
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.model.steps import (
    ConfirmDeletion,
    Kill,
    PodPlan,
    PreStop,
    Release,
    RemoveContainer,
    RemovePod,
    RemoveSandbox,
    StopSandbox,
)
from agent.probes.model import ProbeKind
from nodelib.json_values import Json, decode
from nodelib.kube.times import time_or_none


def termination_of(
    pod: Pod | None,
    last_known: Pod,
    phase: str,
    present: Termination | None,
    now: float,
    started: float | None = None,
) -> Termination | None:
    """Why the pod terminates, if it does. A termination is never taken back, and its grace never grows.

    `pod` None: its object is gone. `phase`: the phase that the agent computed last. `now`, `started`: steady seconds.
    """
    wanted = _fresh_termination(pod, last_known, phase, present, now)
    if wanted is None and pod is not None and (at := deadline(pod, started)) is not None and now >= at:
        text = "Pod was active on the node longer than the specified deadline"
        return Termination(Cause.DEADLINE, now, _grace(pod), "DeadlineExceeded", text)
    if wanted is None or present is None or wanted is present:
        return wanted
    grace = min(present.grace, wanted.grace)
    since = present.since if grace == present.grace else now
    if not present.fails:
        return Termination(wanted.cause, since, grace)
    # What has failed the pod stays its reason; that the object is gone only adds to it.
    cause = Cause.REMOVED if wanted.cause is Cause.REMOVED else present.cause
    return replace(present, cause=cause, since=since, grace=grace)


def combined(present: Termination | None, fresh: Termination) -> Termination:
    """A `fresh` termination of a pod that may terminate already; one that was deleted can still fail."""
    if present is None:
        return fresh
    if present.fails or present.cause is not Cause.DELETED or not fresh.fails:
        return present
    return replace(fresh, grace=min(present.grace, fresh.grace))


def rejection(reason: str, message: str, now: float) -> Termination:
    """The node does not admit the pod: it fails, and nothing needs a grace."""
    return Termination(Cause.REJECTED, now, 1, reason, f"Pod was rejected: {message}")


def _fresh_termination(
    pod: Pod | None, last_known: Pod, phase: str, present: Termination | None, now: float
) -> Termination | None:
    if pod is None:
        return Termination(Cause.REMOVED, now, _grace(last_known))
    if pod.is_deleted:
        return Termination(Cause.DELETED, now, _grace(pod))
    if present is not None:
        return present
    if phase in ("Succeeded", "Failed"):
        return Termination(Cause.FINISHED, now, _grace(pod))
    return None


def deadline(pod: Pod, started: float | None = None) -> float | None:
    """When activeDeadlineSeconds is over (steady seconds); None: never. `started`: else by the status, which others may
    have written.
    """
    seconds = pod.spec.get("activeDeadlineSeconds")
    began = time_or_none(pod.status.get("startTime")) if started is None else started
    return began + int(seconds) if seconds is not None and began is not None else None


def plan_termination(pod: Pod, seen: ObservedPod, facts: Facts, termination: Termination) -> PodPlan:
    """The next steps of the termination. `finished` only when nothing but records of the pod is left."""
    kills = container_kills(pod, seen, facts.now, termination.grace, termination.since)
    if kills:
        names = ", ".join(kill.name for kill in kills)
        hooks = early_hooks(pod, seen, facts, kills)
        return PodPlan(
            (*kills, *hooks), reason=f"{names}: stopping, {seconds_left(termination, facts.now)} s of grace left"
        )
    if facts.blocked is not None and facts.blocked.retry_at > facts.now:
        return PodPlan(wait_until=facts.blocked.retry_at, reason=facts.blocked.message, terminal=True)
    stops = sandbox_stops(seen, facts)
    if stops:
        return PodPlan(stops, reason="the sandbox and its network are being stopped", terminal=True)
    if not facts.released:
        return PodPlan((Release(),), reason="volumes and cgroup are being released", terminal=True)
    if pod.is_deleted and termination.cause is not Cause.REMOVED and not facts.confirmed:
        return PodPlan((ConfirmDeletion(),), reason="its object is being deleted", terminal=True, finished=True)
    if termination.cause is Cause.REMOVED or facts.confirmed:
        return _remove_records(seen, facts)
    if facts.drop_records and (seen.containers or seen.sandboxes):
        return replace(
            _remove_records(seen, facts),
            reason="its records are removed: the disk is nearly full",
            terminal=True,
            finished=True,
        )
    return PodPlan(reason="ended; its records stay until it is deleted", terminal=True, finished=True)


def container_kills(pod: Pod, seen: ObservedPod, now: float, grace: int, since: float) -> tuple[Kill, ...]:
    """The containers to stop now. `grace` (seconds) runs from `since`; once it is over, all are stopped at once."""
    alive = [one for one in seen.containers if one.state in (RunState.RUNNING, RunState.UNKNOWN)]
    # CRI counts whole seconds: rounded down, every pod would lose up to one second of its grace.
    left = max(0, math.ceil(grace - (now - since)))
    to_stop = alive if left == 0 else _next_to_stop(pod, alive)
    return tuple(Kill(one.id, one.name, f"Stopping container {one.name}", left, _pre_stop(pod, one)) for one in to_stop)


def container_kill(
    pod: Pod,
    container: Json,
    latest: ContainerState,
    message: str,
    probe: ProbeKind | None = None,
    *,
    restart: bool = False,
) -> Kill:
    """Stop one container of a pod that lives on, with the grace of the failed `probe` if there is one."""
    grace = grace_seconds(pod, container, probe.field if probe else "")
    hook = (container.get("lifecycle") or {}).get("preStop")
    return Kill(latest.id, container["name"], message, grace, hook, restart, probe)


def early_hooks(pod: Pod, seen: ObservedPod, facts: Facts, kills: tuple[Kill, ...]) -> tuple[PreStop, ...]:
    """Sidecars are stopped one after the other, but all preStop hooks of the pod start as soon as it terminates."""
    grace, killed = kills[0].grace, {kill.container_id for kill in kills}
    waiting = (one for one in seen.containers if one.state is RunState.RUNNING and one.id not in killed)
    if grace <= 0:
        return ()
    found = ((one, _pre_stop(pod, one)) for one in waiting if one.id not in facts.prestop_ran)
    return tuple(PreStop(one.id, one.name, grace, hook) for one, hook in found if hook)


def hook_due(kill: Kill, prestop_ran: AbstractSet[str]) -> Json | None:
    """The preStop hook to run before this kill: once for a container, and not without grace."""
    return kill.hook if kill.grace > 0 and kill.container_id not in prestop_ran else None


def grace_left(grace: int, hook_took: float) -> int:
    """Seconds between SIGTERM and SIGKILL after a hook that took `hook_took` seconds."""
    return max(grace - int(hook_took), MINIMUM_GRACE)


def kill_after_long_hook(step: PreStop, took: float) -> Kill | None:
    """The kill of a container whose early hook took the whole grace: it waits for no other container."""
    return Kill(step.container_id, step.name, f"Stopping container {step.name}", 0) if took >= step.grace else None


def sandbox_stops(seen: ObservedPod, facts: Facts) -> tuple[StopSandbox, ...]:
    """Stop every sandbox that this agent has not stopped itself: its network may still exist."""
    return tuple(StopSandbox(one.id) for one in seen.sandboxes if one.id not in facts.stopped_sandboxes)


def _next_to_stop(pod: Pod, alive: list[ContainerState]) -> list[ContainerState]:
    inits = (container for kind, container in pod.containers(Kind.INIT) if is_sidecar(kind, container))
    order = {container["name"]: number for number, container in enumerate(inits)}
    others = [one for one in alive if one.name not in order]
    if others:
        return others
    last = max(alive, key=lambda one: order[one.name], default=None)
    return [one for one in alive if last is not None and one.name == last.name]


def _remove_records(seen: ObservedPod, facts: Facts) -> PodPlan:
    if facts.has_successor:  # its successor counts on from these containers
        return PodPlan((RemovePod(),), reason="gone; it starts again", terminal=True, finished=True)
    if seen.containers:
        return PodPlan(tuple(RemoveContainer(one.id) for one in seen.containers), reason="records are removed")
    if seen.sandboxes:
        return PodPlan(tuple(RemoveSandbox(one.id) for one in seen.sandboxes), reason="records are removed")
    return PodPlan((RemovePod(),), reason="gone", terminal=True, finished=True)


def _pre_stop(pod: Pod, one: ContainerState) -> Json | None:
    found = pod.container(one.name)
    if found is not None:
        hook = (found[1].get("lifecycle") or {}).get("preStop")
        return hook if isinstance(hook, dict) else None
    try:
        restored = decode(one.annotations.get(PRE_STOP, "null"))
    except json.JSONDecodeError:
        return None
    return restored if isinstance(restored, dict) else None


def _grace(pod: Pod) -> int:
    return max(1, grace_seconds(pod)) if pod.spec else MINIMUM_GRACE


def seconds_left(termination: Termination, now: float) -> int:
    """Of the grace period, at `now` (steady seconds)."""
    return max(0, math.ceil(termination.since + termination.grace - now))
