"""PersistentVolumeClaims with their PersistentVolumes, as the API shows them."""

from __future__ import annotations

from typing import Any

from agent.volumes.model.sources import FoundClaim
from nodelib.json_values import Json

CLAIM_UID = "c-1"


def bound(
    spec: Json | None = None, *, owner: str = "", status: str = "Bound", volume: str = "pv", **meta: Any
) -> FoundClaim:
    """A claim in phase `status` with a PersistentVolume of `spec`. `owner`: UID of the pod that controls the claim;
    other fields go to the claim's metadata."""
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "uid": owner, "controller": True}]
    claim = {"metadata": {"uid": CLAIM_UID, **meta}, "spec": {"volumeName": volume}, "status": {"phase": status}}
    found = {"claimRef": {"uid": CLAIM_UID}, **(spec or {"local": {"path": "/m"}})}
    return FoundClaim(claim, {"metadata": {"name": volume}, "spec": found})
