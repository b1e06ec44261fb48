"""Whether a mounted volume must grow, and the patches of its claim's status.

Follows pkg/volume/util/resize_util.go and operationexecutor/node_expander.go (KEP-1790).
"""

from __future__ import annotations

from nodelib import quantity
from nodelib.json_values import Json

_IN_PROGRESS, _INFEASIBLE = "NodeResizeInProgress", "NodeResizeInfeasible"
_FAILED = "NodeResizeError"
_RESIZING = ("Resizing", "FileSystemResizePending", _FAILED, "ControllerResizeError")


def wanted_size(claim: Json, volume: Json) -> int:
    """Bytes to grow to, 0: nothing to do. The controller grows the PersistentVolume first."""
    size = _storage((volume.get("spec") or {}).get("capacity"))
    state = _state(claim)
    if size <= has_size(claim) or state == _INFEASIBLE or state.startswith("Controller"):
        return 0
    return size


def asks_for_more(claim: Json) -> bool:
    """Whether the claim requests more than it has."""
    return asked_size(claim) > has_size(claim)


def asked_size(claim: Json) -> int:
    """The bytes that the claim requests."""
    return _storage(((claim.get("spec") or {}).get("resources") or {}).get("requests"))


def has_size(claim: Json) -> int:
    """The bytes that the claim's status says it has."""
    return _storage((claim.get("status") or {}).get("capacity"))


def reference(claim: Json, namespace: str, name: str) -> Json:
    """An ObjectReference to the claim, for events."""
    uid = (claim.get("metadata") or {}).get("uid") or ""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid}


def is_in_progress(claim: Json) -> bool:
    """Whether the claim says already that the node grows the volume."""
    return _state(claim) == _IN_PROGRESS


def in_progress() -> Json:
    """Strategic merge patch of the claim's status while the node grows the volume."""
    return {"status": {"allocatedResourceStatuses": {"storage": _IN_PROGRESS}}}


def done(claim: Json, volume: Json) -> Json:
    """Strategic merge patch once the volume has grown."""
    size = volume["spec"]["capacity"]["storage"]
    kept = [one for one in (claim.get("status") or {}).get("conditions") or [] if one["type"] not in _RESIZING]
    status: Json = {"capacity": {"storage": size}, "allocatedResourceStatuses": {"storage": None}}
    gone = [one["type"] for one in (claim.get("status") or {}).get("conditions") or [] if one["type"] in _RESIZING]
    if gone:
        status["conditions"] = [*kept, *({"type": kind, "$patch": "delete"} for kind in gone)]
    return {"status": status}


def infeasible(claim: Json, message: str, stamp: str) -> Json:
    """Strategic merge patch when it will never grow to this size."""
    status: Json = {"allocatedResourceStatuses": {"storage": _INFEASIBLE}}
    if (condition := _new_error(claim, message, stamp)) is not None:
        status["conditions"] = [condition]
    return {"status": status}


def failed(claim: Json, message: str, stamp: str) -> Json | None:
    """Strategic merge patch when it did not grow this time; None: the claim says so already."""
    condition = _new_error(claim, message, stamp)
    return None if condition is None else {"status": {"conditions": [condition]}}


def is_infeasible(code: str) -> bool:
    """Whether a driver that fails with this gRPC code will always fail."""
    return code in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND")


def is_in_use(code: str) -> bool:
    """Whether a driver that fails with this gRPC code cannot grow the volume where it is published or staged."""
    return code == "FAILED_PRECONDITION"


def _new_error(claim: Json, message: str, stamp: str) -> Json | None:
    """The condition of a failure; one that is there is kept, as MergeResizeConditionOnPVC does."""
    found = (claim.get("status") or {}).get("conditions") or []
    if any(one.get("type") == _FAILED and one.get("status") == "True" for one in found):
        return None
    text = f"failed to expand pvc with {message}"
    return {"type": _FAILED, "status": "True", "lastTransitionTime": stamp, "message": text}


def _state(claim: Json) -> str:
    return str(((claim.get("status") or {}).get("allocatedResourceStatuses") or {}).get("storage") or "")


def _storage(listed: Json | None) -> int:
    return quantity.value((listed or {}).get("storage") or "0")
