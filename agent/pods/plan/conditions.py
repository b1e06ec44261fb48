"""Pod conditions owned by the node (pkg/kubelet/status/generate.go), with upstream's reasons and messages."""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar
from nodelib.json_values import Json

OWNED = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizeInProgress",
    "PodResizePending",
    "AllContainersRestarting",
)
_MOST_GATES = 100  # that are named; a pod has room for 30,000, and this is asked at each change of it
# Others write this condition too: the node only ever adds it.
DISRUPTION_TARGET, BY_KUBELET = "DisruptionTarget", "TerminationByKubelet"


def initialized(pod: Pod, statuses: Mapping[str, Json], phase: str, previous: Json) -> Json:
    """True once every init container has succeeded (sidecars: started), and from then on."""
    unknown, incomplete = [], []
    for kind, container in pod.containers(Kind.INIT):
        status = statuses.get(container["name"])
        if status is None:
            unknown.append(container["name"])
        elif not status.get("started" if is_sidecar(kind, container) else "ready"):
            incomplete.append(container["name"])
    if phase == "Succeeded" and not unknown:
        return _condition("Initialized", True, "PodCompleted")
    if _main_started(pod, statuses) or _was_true(previous, "Initialized"):
        return _condition("Initialized", True)
    message = _listed("unknown", unknown, "incomplete", incomplete)
    if message:
        return _condition("Initialized", False, "ContainersNotInitialized", message)
    return _condition("Initialized", True)


def containers_ready(pod: Pod, statuses: Mapping[str, Json], phase: str) -> Json:
    """True while every main container and sidecar is ready."""
    unknown, unready = [], []
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        if kind is Kind.INIT and not is_sidecar(kind, container):
            continue
        status = statuses.get(container["name"])
        if status is None:
            unknown.append(container["name"])
        elif not status.get("ready"):
            unready.append(container["name"])
    if phase == "Succeeded" and not unknown:
        return _condition("ContainersReady", False, "PodCompleted")
    if phase == "Failed":
        return _condition("ContainersReady", False, "PodFailed")
    message = _listed("unknown", unknown, "unready", unready)
    if message:
        return _condition("ContainersReady", False, "ContainersNotReady", message)
    return _condition("ContainersReady", True)


def ready(pod: Pod, containers: Json, others: list[Json]) -> Json:
    """Ready: ContainersReady and every readiness gate."""
    if containers["status"] != "True":
        return {**containers, "type": "Ready"}
    problems: list[str] = []
    known = {one.get("type"): one for one in reversed(others)}
    for gate in pod.spec.get("readinessGates") or []:
        wanted = gate["conditionType"]
        found = known.get(wanted)
        if len(problems) >= _MOST_GATES:
            break
        if found is None:
            problems.append(f'corresponding condition of pod readiness gate "{wanted}" does not exist.')
        elif found.get("status") != "True":
            problems.append(f'the status of pod readiness gate "{wanted}" is not "True", but {found.get("status")}')
    if problems:
        return _condition("Ready", False, "ReadinessGatesNotReady", ", ".join(problems))
    return _condition("Ready", True)


def ready_to_start(problem: str) -> Json:
    """PodReadyToStartContainers: the sandbox and its network are ready; `problem` says why not."""
    if problem:
        return _condition("PodReadyToStartContainers", False, "PodSandboxNotReady", problem)
    return _condition("PodReadyToStartContainers", True)


def disrupted(message: str) -> Json:
    """DisruptionTarget: the pod is ended for the node's sake (KEP-3329)."""
    return _condition(DISRUPTION_TARGET, True, BY_KUBELET, message)


def scheduled() -> Json:
    return _condition("PodScheduled", True)


def with_times(conditions: list[Json], previous: list[Json], now: str, generation: int | None) -> list[Json]:
    """Keep each lastTransitionTime unless the status has changed; `now` as RFC 3339."""
    before = {one.get("type"): one for one in previous}
    found = []
    for one in conditions:
        old = before.get(one["type"])
        same = old is not None and old.get("status") == one["status"]
        since = old.get("lastTransitionTime") if old is not None and same else None
        extra: Json = {} if generation is None else {"observedGeneration": generation}
        found.append({**one, **extra, "lastProbeTime": None, "lastTransitionTime": since or now})
    return found


def _condition(kind: str, status: bool, reason: str = "", message: str = "") -> Json:
    found: Json = {"type": kind, "status": "True" if status else "False"}
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def _listed(first: str, one: list[str], second: str, other: list[str]) -> str:
    lists = ((first, one), (second, other))
    return ", ".join(f"containers with {word} status: [{' '.join(names)}]" for word, names in lists if names)


def _main_started(pod: Pod, statuses: Mapping[str, Json]) -> bool:
    for _, container in pod.containers(Kind.MAIN):
        status = statuses.get(container["name"])
        if status is None:
            continue
        if "terminated" in (status.get("lastState") or {}) or "waiting" not in status["state"]:
            return True
    return False


def _was_true(previous: Json, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in previous.get("conditions") or [])
