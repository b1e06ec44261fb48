"""Which containers can be started now, and what the others wait for: a back-off, an image, a sandbox. Pure.

Follows startContainer and doBackOff of pkg/kubelet/kuberuntime/kuberuntime_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.common.model.labels import HASH, hash_in, restart_count
from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState, SandboxState
from agent.common.model.states import ImagePhase, Waiting
from agent.common.plan import backoff
from agent.images.plan.images import image_volumes, wanted
from agent.pods.model.facts import Facts
from agent.pods.model.steps import EnsureImage, PodPlan, Start, Step
from agent.pods.plan import restart_all
from agent.pods.plan.restart_backoff import backoff_key
from nodelib.json_values import Json

Candidate = tuple[Kind, Json]

_STARTS_OF_ONE = 4  # calls that fail before a container that the runtime will not start is given up for another


def plan_starts(
    pod: Pod, seen: ObservedPod, facts: Facts, sandbox: SandboxState | None, candidates: Iterable[Candidate]
) -> PodPlan:
    """Of these containers those that can be started, in their order. `sandbox`: None while there is none yet."""
    steps: list[Step] = []
    waiting: dict[str, Waiting] = {}
    times: list[float] = []
    for kind, container in candidates:
        name = container["name"]
        step, why, at = _start(pod, seen, facts, sandbox, kind, container)
        if step is not None:
            steps.append(step)
        if why is not None:
            waiting[name] = why
        if at is not None:
            times.append(at)
        # The next container starts after this one's postStart hook, as upstream does it.
        if (container.get("lifecycle") or {}).get("postStart") and (step is not None or why is None):
            break
    reason = next((f"{name}: {why.reason} {why.message}".strip() for name, why in waiting.items()), "")
    return PodPlan(tuple(steps), min(times, default=None), reason, waiting)


def _start(
    pod: Pod, seen: ObservedPod, facts: Facts, sandbox: SandboxState | None, kind: Kind, container: Json
) -> tuple[Step | None, Waiting | None, float | None]:
    name = container["name"]
    latest = seen.latest(name)
    created = latest if latest is not None and _only_created(pod, latest, sandbox, container, facts) else None
    attempt = restart_count(created.annotations, created.attempt) if created else _next_attempt(pod, seen, kind, name)
    if latest is not None and latest.state is RunState.EXITED and kind is not Kind.EPHEMERAL:
        at = backoff.until(facts.backoff.get(backoff_key(container)), facts.ended_at(latest))
        if at > facts.now:
            return None, _crash_loop(pod, container, facts), at
    failure = facts.failures.get(name)
    if failure is not None and failure.retry_at > facts.now:
        return None, Waiting(failure.reason, failure.message), failure.retry_at
    last_failure = Waiting(failure.reason, failure.message) if failure is not None else None
    for volume in (*image_volumes(pod, container), None):
        missing = _image(facts, EnsureImage(kind, container, attempt, volume), last_failure)
        if missing is not None:
            return missing
    if sandbox is None:
        return None, last_failure, None
    if not facts.prepared:
        return None, last_failure, facts.blocked.retry_at if facts.blocked else None
    start = Start(kind, container, attempt, sandbox.id)
    if created is not None:
        start = replace(start, replaces_id=created.id) if created.cut else replace(start, created_id=created.id)
    return start, last_failure, None


def _only_created(
    pod: Pod, latest: ContainerState, sandbox: SandboxState | None, container: Json, facts: Facts
) -> bool:
    """Whether the container was created in this sandbox and never ran: starting it, or one in its place, is no restart.

    The agent or the runtime was killed before the start, or another call failed meanwhile. Upstream counts a restart.
    """
    failure = facts.failures.get(container["name"])
    given_up = failure is not None and failure.reason == "RunContainerError" and failure.times >= _STARTS_OF_ONE
    return (
        latest.state is RunState.CREATED
        and sandbox is not None
        and latest.sandbox_id == sandbox.id
        and latest.annotations.get(HASH) == hash_in(pod, container)
        and (latest.cut or not given_up)
    )


def _image(
    facts: Facts, ensure: EnsureImage, last_failure: Waiting | None
) -> tuple[Step | None, Waiting | None, float | None] | None:
    """The image's step, the container's waiting state and when to plan again; None if the image is present."""
    image = facts.images.get(wanted(ensure.container, ensure.volume).key)
    if image is None or (ensure.volume is None and image.attempt != ensure.attempt):
        return ensure, last_failure, None
    if image.phase is ImagePhase.PULLING:
        return None, last_failure or image.waiting, None
    if image.phase is ImagePhase.FAILED:
        if image.retry_at > facts.now:
            return None, image.waiting, image.retry_at
        return ensure, image.waiting, None
    return None


def _crash_loop(pod: Pod, container: Json, facts: Facts) -> Waiting:
    """The waiting state of a container in restart back-off."""
    entry = facts.backoff[backoff_key(container)]
    text = (
        f"back-off {_duration(entry.delay)} restarting failed container={container['name']} "
        f"pod={pod.name}_{pod.namespace}({pod.uid})"
    )
    return Waiting("CrashLoopBackOff", text)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _next_attempt(pod: Pod, seen: ObservedPod, kind: Kind, name: str) -> int:
    """The number of the next attempt: one more than the newest that the runtime, or else the API, knows of."""
    latest = seen.latest(name)
    if latest is not None:
        return restart_count(latest.annotations, latest.attempt) + 1
    listed = {Kind.INIT: "initContainerStatuses", Kind.MAIN: "containerStatuses"}.get(kind, "")
    status = pod.once(("by name", listed), lambda: _by_name(pod.status.get(listed) or [])).get(name, {})
    if status.get("containerID"):
        return int(status.get("restartCount", 0)) + _has_run(status)
    return int(status.get("restartCount", 0)) if restart_all.was_reset(status) else 0


def _by_name(statuses: list[Json]) -> dict[str, Json]:
    return {status.get("name", ""): status for status in reversed(statuses)}


def _has_run(status: Json) -> bool:
    """Whether the container of this status was started: one that waits and has never ended was only created."""
    return "waiting" not in (status.get("state") or {}) or "terminated" in (status.get("lastState") or {})
