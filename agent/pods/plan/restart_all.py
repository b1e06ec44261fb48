"""Starting a whole pod anew in its sandbox because one container's rule says so (KEP-5532).

What has to be done is read from the runtime alone: while the record of a container that ended by such a rule is
there, everything else is killed (without grace) and removed; its own record goes last, and then the pod starts as
a new one would. Follows kuberuntime's ContainersToReset and kubecontainer.ShouldAllContainersRestart.
"""

from __future__ import annotations

from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState
from agent.common.plan.restart import first_rule
from agent.pods.model.steps import Kill, PodPlan, RemoveContainer
from nodelib.json_values import Json

REASON = "RestartingAllContainers"
CONDITION = "AllContainersRestarting"
_ACTION = "RestartAllContainers"
_REMOVED = "The container is removed because RestartAllContainers in place"
_STARTED, _STARTED_TEXT = "RestartAllContainersStarted", "container exited with restart policy rule"


def under_way(pod: Pod, seen: ObservedPod) -> bool:
    """A container has ended by such a rule, and its record is still there."""
    return bool(_sources(pod, seen))


def plan_reset(pod: Pod, seen: ObservedPod) -> PodPlan:
    """The next steps of it."""
    sources = _sources(pod, seen)
    alive = [one for one in seen.containers if one.state in (RunState.RUNNING, RunState.UNKNOWN)]
    reason = f"{', '.join(sorted(sources))}: the rule of its end restarts all containers"
    if alive:
        text = "Killing container before all containers restart"
        return PodPlan(tuple(Kill(one.id, one.name, text, 0, None, restart=True) for one in alive), reason=reason)
    others = [one for one in seen.containers if one.name not in sources]
    return PodPlan(tuple(RemoveContainer(one.id) for one in others or seen.containers), reason=reason)


def could(pod: Pod) -> bool:
    """Some container has such a rule."""
    rules = (rule for _, one in pod.containers(Kind.INIT, Kind.MAIN) for rule in one.get("restartPolicyRules") or [])
    return any(rule.get("action") == _ACTION for rule in rules)


def condition(restarting: bool) -> Json:
    if not restarting:
        return {"type": CONDITION, "status": "False"}
    return {"type": CONDITION, "status": "True", "reason": _STARTED, "message": _STARTED_TEXT}


def mark(statuses: list[Json]) -> None:
    """Containers on their way out wait for their next start; the count of restarts is that start's already."""
    for status in statuses:
        if status.pop("containerID", ""):
            times = {"startedAt": None, "finishedAt": None}
            status["lastState"] = {"terminated": {"exitCode": 137, "reason": REASON, "message": _REMOVED, **times}}
            status["restartCount"] += 1
        status.update(state={"waiting": {"reason": REASON, "message": _REMOVED}}, ready=False, started=False)


def was_reset(status: Json | None) -> bool:
    """The container's last end was of this kind: no fault of its own, so it is to run again whatever its policy."""
    return bool(((status or {}).get("lastState") or {}).get("terminated", {}).get("reason") == REASON)


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
