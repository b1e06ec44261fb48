"""Whether a mounted volume must grow, and the patches of its claim's status.

Follows pkg/volume/util/resize_util.go and operationexecutor/node_expander.go (KEP-1790).
"""

from __future__ import annotations

from nodelib import quantity
from nodelib.json_values import Json

_IN_PROGRESS, _INFEASIBLE = "NodeResizeInProgress", "NodeResizeInfeasible"
_RESIZING = ("Resizing", "FileSystemResizePending", "NodeResizeError", "ControllerResizeError")


def wanted_size(claim: Json, volume: Json) -> int:
    """Bytes to grow to, 0: nothing to do. The controller grows the PersistentVolume first."""
    has = _storage((claim.get("status") or {}).get("capacity"))
    size = _storage((volume.get("spec") or {}).get("capacity"))
    state = _state(claim)
    if size <= has or state == _INFEASIBLE or state.startswith("Controller"):
        return 0
    return size


def asks_for_more(claim: Json) -> bool:
    """Whether the claim requests more than it has."""
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests")
    return _storage(requests) > _storage((claim.get("status") or {}).get("capacity"))


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


def infeasible(message: str, stamp: str) -> Json:
    """Strategic merge patch when the driver refuses for good."""
    condition = {
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": stamp,
        "message": message,
    }
    return {"status": {"allocatedResourceStatuses": {"storage": _INFEASIBLE}, "conditions": [condition]}}


def is_infeasible(code: str) -> bool:
    """Whether a driver that fails with this gRPC code will always fail."""
    return code in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND")


def _state(claim: Json) -> str:
    return str(((claim.get("status") or {}).get("allocatedResourceStatuses") or {}).get("storage") or "")


def _storage(listed: Json | None) -> int:
    return quantity.value((listed or {}).get("storage") or "0")
