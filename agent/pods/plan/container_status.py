"""The ContainerStatus of every container of a pod, from the runtime's view and the status reported before.

Follows the kubelet's convertToAPIContainerStatuses (pkg/kubelet/kubelet_pods.go) and the
prober manager's UpdatePodStatus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.common.model.labels import bounded_image, restart_count
from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, ProbeState, RunState
from agent.common.model.states import Waiting
from agent.common.plan.restart import is_sidecar, should_start
from agent.resources.model import Allocation
from agent.resources.plan.container_resources import shown_resources
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

LISTED = {
    Kind.INIT: "initContainerStatuses",
    Kind.MAIN: "containerStatuses",
    Kind.EPHEMERAL: "ephemeralContainerStatuses",
}
_GONE = "The container could not be located when the pod was deleted.  The container used to be Running"
_LOST = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)
_MESSAGES_LIMIT = 12 * 1024  # bytes, all containers of a pod together (MaxPodTerminationMessageLogLength)


def container_statuses(
    pod: Pod,
    kind: Kind,
    seen: ObservedPod,
    previous: Json,
    waiting: Mapping[str, Waiting],
    probes: Mapping[str, ProbeState],
    actuated: Allocation | None = None,
) -> list[Json]:
    """In the order of the spec for init containers, by name for the others, as the API shows them."""
    before = {one["name"]: one for one in previous.get(LISTED[kind]) or []}
    count = sum(1 for _ in pod.containers())
    found = []
    for _, container in pod.containers(kind):
        old = before.get(container["name"])
        status = _status(pod, kind, container, seen, old, waiting, actuated)
        _ready(kind, container, status, old, seen, probes)
        for state in (status["state"], status["lastState"]):
            if message := state.get("terminated", {}).get("message"):
                share = message.encode(errors="replace")[: _MESSAGES_LIMIT // count]
                state["terminated"]["message"] = share.decode(errors="ignore")
        found.append(status)
    return found if kind is Kind.INIT else sorted(found, key=lambda one: str(one["name"]))


def show_as_waiting(pod: Pod, statuses: list[Json]) -> None:
    """Show containers that the node has stopped to start them again as waiting, whatever their exit code.

    Once shown as terminated with 0 under OnFailure, a container could never be shown running again: the API server
    refuses that.
    """
    for status in statuses:
        if "terminated" in status["state"]:
            status["lastState"], status["state"] = status["state"], {"waiting": {"reason": _not_yet(pod)}}


def _status(
    pod: Pod,
    kind: Kind,
    container: Json,
    seen: ObservedPod,
    old: Json | None,
    waiting: Mapping[str, Waiting],
    actuated: Allocation | None,
) -> Json:
    name = container["name"]
    attempts = seen.attempts(name)
    status = _from_runtime(pod, container, attempts, old, actuated) if attempts else _unseen(pod, kind, container, old)
    if kind is Kind.INIT and _init_succeeded(pod, container, seen, attempts, status):
        return status
    latest = attempts[0] if attempts else None
    if kind is Kind.EPHEMERAL and latest is not None:
        return status
    why = waiting.get(name)
    if why is not None and should_start(pod, container, latest):
        if "terminated" in status["state"]:
            status["lastState"] = status["state"]
        status["state"] = {"waiting": _waiting(why)}
    return status


def _unseen(pod: Pod, kind: Kind, container: Json, old: Json | None) -> Json:
    status: Json = {
        "name": container["name"],
        "image": bounded_image(container),
        "imageID": "",
        "restartCount": 0,
        "ready": False,
        "state": {"waiting": {"reason": _not_yet(pod)}},
        "lastState": {},
    }
    if container.get("volumeMounts"):
        status["volumeMounts"] = _volume_mounts(container, None)
    if old is None:
        return status
    if "terminated" in (old.get("state") or {}):
        return _copy(old)
    status["restartCount"] = old.get("restartCount", 0)
    status["lastState"] = dict(old.get("lastState") or {})
    if "running" in (old.get("state") or {}) and "terminated" not in status["lastState"]:
        # It ran and its record is gone: without this the pod would go back to Pending.
        status["lastState"] = {"terminated": _terminated("ContainerStatusUnknown", _GONE)}
        if not pod.is_deleted:
            status["restartCount"] += 1
    return status


def _not_yet(pod: Pod) -> str:
    return "PodInitializing" if pod.spec.get("initContainers") else "ContainerCreating"


def _from_runtime(
    pod: Pod, container: Json, attempts: Sequence[ContainerState], old: Json | None, actuated: Allocation | None
) -> Json:
    latest = attempts[0]
    status: Json = {
        "name": latest.name,
        "image": latest.image,
        "imageID": latest.image_ref,
        "containerID": latest.full_id,
        "restartCount": restart_count(latest.annotations, latest.attempt),
        "ready": False,
        "state": _state(latest, old, _not_yet(pod)),
        "lastState": {},
    }
    if latest.state is RunState.UNKNOWN and "terminated" in status["state"] and old is not None:
        status["restartCount"] = old.get("restartCount", 0) + 1
    if len(attempts) > 1:
        status["lastState"] = _state(attempts[1], None, _not_yet(pod))
    elif old is not None:
        if old.get("containerID") != status["containerID"] and "terminated" in (old.get("state") or {}):
            status["lastState"] = dict(old["state"])
        else:
            status["lastState"] = dict(old.get("lastState") or {})
    if container.get("volumeMounts"):
        status["volumeMounts"] = _volume_mounts(container, latest)
    if latest.user:
        status["user"] = {"linux": _user(latest.user)}
    if latest.stop_signal and latest.stop_signal != "RUNTIME_DEFAULT":
        status["stopSignal"] = latest.stop_signal
    resources = container.get("resources") or {}
    if resources.get("requests"):
        status["allocatedResources"] = resources["requests"]
    in_force = actuated.containers.get(container["name"]) if actuated is not None else None
    status["resources"] = shown_resources(resources, latest, in_force)
    return status


def _state(one: ContainerState, old: Json | None, not_yet: str) -> Json:
    if one.state is RunState.RUNNING:
        return {"running": {"startedAt": format_rfc3339(one.started_at / 1e9)}}
    if one.state is RunState.EXITED:
        ended: Json = {
            "exitCode": one.exit_code,
            "reason": one.reason,
            "startedAt": format_rfc3339(one.started_at / 1e9),
            "finishedAt": format_rfc3339(one.finished_at / 1e9),
            "containerID": one.full_id,
        }
        if one.message:
            ended["message"] = one.message
        return {"terminated": ended}
    if one.state is RunState.UNKNOWN and old is not None and "running" in (old.get("state") or {}):
        text = "The container could not be located when the pod was terminated"
        return {"terminated": _terminated("ContainerStatusUnknown", text)}
    return {"waiting": {"reason": not_yet}}


def _init_succeeded(
    pod: Pod, container: Json, seen: ObservedPod, attempts: Sequence[ContainerState], status: Json
) -> bool:
    if attempts:
        return attempts[0].state is RunState.EXITED and attempts[0].exit_code == 0
    if is_sidecar(Kind.INIT, container):
        return False
    ended = status["state"].get("terminated")
    if ended is not None and pod.source != "api" and ended.get("exitCode") == 0 and not ended.get("message"):
        # Only its mirror still shows how it ended. Upstream shows just this message; here it joins the old state.
        status["state"] = {"terminated": {**ended, "message": _LOST}}
    if "waiting" not in status["state"]:
        return False
    if pod.once("main names", lambda: {main["name"] for _, main in pod.containers(Kind.MAIN)}).isdisjoint(seen.names):
        return False
    status["state"] = {"terminated": {**_terminated("Completed", _LOST), "exitCode": 0}}
    return True


def _ready(
    kind: Kind, container: Json, status: Json, old: Json | None, seen: ObservedPod, probes: Mapping[str, ProbeState]
) -> None:
    """Fill in `started` and `ready`. What the API last showed of a running container holds until a probe answers."""
    if kind is Kind.EPHEMERAL:
        return
    running = "running" in status["state"]
    if kind is Kind.INIT and not is_sidecar(kind, container):
        status["started"] = running
        ended = status["state"].get("terminated")
        status["ready"] = bool(ended) and ended.get("exitCode") == 0
        return
    if not running:
        status["started"] = False
        return
    answer = probes.get(status["containerID"].rpartition("://")[2])
    same = old is not None and old.get("containerID") == status["containerID"]
    has_startup, has_readiness = bool(container.get("startupProbe")), bool(container.get("readinessProbe"))
    if answer is not None:
        status["started"], status["ready"] = answer.started, answer.started and answer.ready
    elif has_startup or has_readiness:
        status["started"] = bool(same and old and old.get("started")) or not has_startup
        status["ready"] = bool(status["started"] and ((same and old and old.get("ready")) or not has_readiness))
    else:
        status["started"] = status["ready"] = True


def _volume_mounts(container: Json, latest: ContainerState | None) -> list[Json]:
    actual = {mount.get("container_path"): mount for mount in (latest.mounts if latest else ())}
    found = []
    for mount in container["volumeMounts"]:
        one: Json = {"name": mount["name"], "mountPath": mount["mountPath"]}
        if mount.get("readOnly"):
            recursive = actual.get(mount["mountPath"], {}).get("recursive_read_only")
            one |= {"readOnly": True, "recursiveReadOnly": "Enabled" if recursive else "Disabled"}
        found.append(one)
    return found


def _user(user: Json) -> Json:
    found: Json = {"uid": user.get("uid", 0), "gid": user.get("gid", 0)}
    if user.get("supplemental_groups"):
        found["supplementalGroups"] = list(user["supplemental_groups"])
    return found


def _terminated(reason: str, message: str) -> Json:
    return {"exitCode": 137, "reason": reason, "message": message, "startedAt": None, "finishedAt": None}


def _waiting(why: Waiting) -> Json:
    return {"reason": why.reason, "message": why.message} if why.message else {"reason": why.reason}


def _copy(status: Json) -> Json:
    return {**status, "state": dict(status["state"]), "lastState": dict(status.get("lastState") or {})}
