"""The strategic merge patch that turns the status in the API into the computed one.

Only fields and conditions that the node owns are compared and sent. Lists that the API merges by key (podIPs, hostIPs)
are replaced as a whole, conditions are merged by type, resources by name.
"""

from __future__ import annotations

from agent.common.model.pods import Pod
from agent.pods.plan.conditions import BY_KUBELET, DISRUPTION_TARGET, OWNED
from nodelib.json_values import Json

_OWN_FIELDS = (
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "qosClass",
    "observedGeneration",
    "allocatedResources",
    "resources",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
)
_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_CREATING = ("ContainerCreating", "PodInitializing")
_MERGED_LISTS = ("hostIPs", "podIPs")
_NOT_URGENT = {"observedGeneration", "podIP", "podIPs", "conditions"}
_NOT_URGENT_OF_CONTAINER = {"containerID", "image", "imageID", "stopSignal", "user", "volumeMounts"}
_NOT_URGENT_CONDITION = "PodReadyToStartContainers"
_MERGED_MAPS = ("allocatedResources", "resources")


def status_patch(pod: Pod, shown: Json, wanted: Json) -> Json | None:
    """None if the API shows all of it already."""
    changes: Json = {}
    for name in _OWN_FIELDS:
        old, new = shown.get(name), wanted.get(name)
        if _same(old, new):
            continue
        if name in _MERGED_LISTS:
            changes[name] = [*(new or []), {"$patch": "replace"}]
        elif name in _MERGED_MAPS and new is not None:
            changes[name] = _merged(old or {}, new)
        else:
            changes[name] = new
    before = {one.get("type"): one for one in shown.get("conditions") or []}
    conditions = [
        one
        for one in wanted.get("conditions") or []
        if (one["type"] in OWNED or _by_kubelet(one)) and not _same(before.get(one["type"]), one)
    ]
    kept = {one["type"] for one in wanted.get("conditions") or []}
    removed = [{"$patch": "delete", "type": kind} for kind in before if kind in OWNED and kind not in kept]
    if conditions or removed:
        changes["conditions"] = [*(_whole(one, before.get(one["type"])) for one in conditions), *removed]
    if not changes:
        return None
    return {"metadata": {"uid": pod.uid}, "status": changes}


def is_urgent(shown: Json, wanted: Json) -> bool:
    """Whether somebody may be waiting for what has changed: the phase, readiness, a container's state.

    A changed address, id or sandbox condition, or the news that all containers are being created, is soon followed by
    such a change and can be sent with it.
    """
    return not _same(_urgent_fields(shown), _urgent_fields(wanted)) and not _only_being_created(shown, wanted)


def _only_being_created(shown: Json, wanted: Json) -> bool:
    if shown.get("phase", "Pending") != "Pending" or wanted.get("phase") != "Pending" or wanted.get("reason"):
        return False
    return not any(shown.get(name) for name in _LISTS) and all(
        (one.get("state") or {}).get("waiting", {}).get("reason") in _CREATING and not one.get("lastState")
        for name in _LISTS
        for one in wanted.get(name) or []
    )


def _urgent_fields(status: Json) -> Json:
    found: Json = {name: status.get(name) for name in _OWN_FIELDS if name not in _NOT_URGENT}
    found["conditions"] = {
        one["type"]: one.get("status")
        for one in status.get("conditions") or []
        if (one.get("type") in OWNED or _by_kubelet(one)) and one["type"] != _NOT_URGENT_CONDITION
    }
    for name in _LISTS:
        found[name] = [
            {key: value for key, value in one.items() if key not in _NOT_URGENT_OF_CONTAINER}
            for one in status.get(name) or []
        ]
    return found


def _merged(old: Json, new: Json) -> Json:
    # A "$patch: replace" would empty a map of quantities: names that are gone are set to null instead.
    found: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        found[name] = _merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return found


def _whole(condition: Json, old: Json | None) -> Json:
    # Conditions are merged by type: a reason that is gone must be set to null.
    gone = {name: None for name in ("reason", "message") if (old or {}).get(name) and not condition.get(name)}
    return {**condition, **gone}


def _same(old: object, new: object) -> bool:
    """Whether the API server would show both alike: it leaves out empty and null members.

    What is equal, such as the list of a container's 25,000 mounts, is not looked into.
    """
    if old == new:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_same_member(old.get(key), new.get(key)) for key in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(_same(one, other) for one, other in zip(old, new, strict=True))
    return False


def _same_member(old: object, new: object) -> bool:
    return _same(old, new) or (_is_left_out(old) and _is_left_out(new))


def _is_left_out(value: object) -> bool:
    return all(map(_is_left_out, value.values())) if isinstance(value, dict) else value in (None, "", [])


def _by_kubelet(one: Json) -> bool:
    return bool(one["type"] == DISRUPTION_TARGET and one.get("reason") == BY_KUBELET)
