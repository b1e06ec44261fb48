"""RestartAllContainers (KEP-5532): a container's exit makes all containers of its pod start anew in the same sandbox.

The plan is made from the runtime's records alone: while the record of a container that ended by such a rule is there,
all others are killed (without grace) and removed; its own record goes last, and then the pod starts like a new one.
Follows kuberuntime's ContainersToReset and kubecontainer.ShouldAllContainersRestart.
"""

from __future__ import annotations

from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState
from agent.common.plan import backoff
from agent.common.plan.restart import first_rule
from agent.pods.model.facts import Facts
from agent.pods.model.steps import Kill, PodPlan, RemoveContainer
from agent.pods.plan.restart_backoff import backoff_key
from nodelib.json_values import Json

REASON = "RestartingAllContainers"
CONDITION = "AllContainersRestarting"
_ACTION = "RestartAllContainers"
_REMOVED = "The container is removed because RestartAllContainers in place"
_STARTED, _STARTED_TEXT = "RestartAllContainersStarted", "container exited with restart policy rule"


def under_way(pod: Pod, seen: ObservedPod) -> bool:
    """Whether a container has ended by such a rule and its record is still there."""
    return bool(_sources(pod, seen))


def plan_reset(pod: Pod, seen: ObservedPod, facts: Facts) -> PodPlan:
    """The next steps of the restart. One that follows the last too soon waits as any restart, with nothing running."""
    sources = _sources(pod, seen)
    alive = [one for one in seen.containers if one.state in (RunState.RUNNING, RunState.UNKNOWN)]
    reason = f"{', '.join(sorted(sources))}: its exit restarts all containers"
    if alive:
        text = "Killing container before all containers restart"
        return PodPlan(tuple(Kill(one.id, one.name, text, 0, None, restart=True) for one in alive), reason=reason)
    others = [one for one in seen.containers if one.name not in sources]
    if others:
        return PodPlan(tuple(RemoveContainer(one.id) for one in others), reason=reason)
    at = max((_backed_off_until(pod, seen, facts, name) for name in sources), default=0.0)
    if at > facts.now:
        return PodPlan(wait_until=at, reason=reason)
    return PodPlan(tuple(RemoveContainer(one.id, restarts=True) for one in seen.containers), reason=reason)


def has_rule(pod: Pod) -> bool:
    """Whether some container has such a rule."""
    rules = (rule for _, one in pod.containers(Kind.INIT, Kind.MAIN) for rule in one.get("restartPolicyRules") or [])
    return any(rule.get("action") == _ACTION for rule in rules)


def condition(restarting: bool) -> Json:
    """The condition AllContainersRestarting."""
    if not restarting:
        return {"type": CONDITION, "status": "False"}
    return {"type": CONDITION, "status": "True", "reason": _STARTED, "message": _STARTED_TEXT}


def show_restarting(statuses: list[Json]) -> None:
    """Show the containers waiting for their next start, which their restart counts already include."""
    for status in statuses:
        if status.pop("containerID", ""):
            times = {"startedAt": None, "finishedAt": None}
            status["lastState"] = {"terminated": {"exitCode": 137, "reason": REASON, "message": _REMOVED, **times}}
            status["restartCount"] += 1
        status.update(state={"waiting": {"reason": REASON, "message": _REMOVED}}, ready=False, started=False)


def was_reset(status: Json | None) -> bool:
    """Whether such a restart ended the container: then it runs again whatever its restart policy."""
    return bool(((status or {}).get("lastState") or {}).get("terminated", {}).get("reason") == REASON)


def _backed_off_until(pod: Pod, seen: ObservedPod, facts: Facts, name: str) -> float:
    found, latest = pod.container(name), seen.latest(name)
    if found is None or latest is None:
        return 0.0
    return backoff.until(facts.backoff.get(backoff_key(found[1])), facts.ended_at(latest))


def _sources(pod: Pod, seen: ObservedPod) -> set[str]:
    return {
        container["name"]
        for _, container in pod.containers(Kind.INIT, Kind.MAIN)
        if _triggers(container, seen.latest(container["name"]))
    }


def _triggers(container: Json, latest: ContainerState | None) -> bool:
    if latest is None or latest.state is not RunState.EXITED:
        return False
    rule = first_rule(container, latest.exit_code)
    return rule is not None and rule.get("action") == _ACTION
