"""The pod that is served: the API's object with the agent's own status (server.go, getEffectivePodStatus)."""

from __future__ import annotations

import orjson

from agent.common.model.pods import Pod
from agent.pods_api.model import ServedPod
from nodelib.json_values import Json

_LARGE = 32 * 1024  # bytes as JSON: such a pod takes two milliseconds to encode, the largest ones nearly a hundred
_NOT_YET = {
    "status": "False",
    "reason": "ContainersNotReady",
    "message": "Kubelet is initializing pod containers",
}


def served(one: ServedPod) -> Json:
    """The whole Pod. A status that only the API knows is not trusted to say that the pod is ready."""
    return {**one.pod.raw, "status": one.status or _unverified(one.pod.status)}


def is_large(pod: Pod) -> bool:
    """Whether the event loop should not encode it."""
    return pod.once("is large", lambda: _is_large(pod.raw))


def _is_large(raw: Json) -> bool:
    try:
        return len(orjson.dumps(raw)) > _LARGE
    except orjson.JSONEncodeError:  # a static pod may have any number; whoever encodes it says so
        return True


def only_name(one: ServedPod) -> Json:
    """What a DELETED event says of a pod."""
    pod = one.pod
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}}


def _unverified(status: Json) -> Json:
    conditions = [
        {**each, **_NOT_YET} if each.get("type") == "Ready" and each.get("status") == "True" else each
        for each in status.get("conditions") or ()
    ]
    return {
        **status,
        "phase": status.get("phase") or "Pending",
        **({"conditions": conditions} if conditions else {}),
    }
