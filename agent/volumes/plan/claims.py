"""Which PersistentVolume a pod may use through a claim: whether it is bound, whose it is, who else has it.

Order and messages are those of pkg/kubelet/volumemanager/populator (getPVCExtractPV, getPVSpec), of
component-helpers/storage/ephemeral (VolumeIsForPod), and of operation_generator.go (ReadWriteOncePod).
"""

from __future__ import annotations

from agent.common.model.pods import Pod
from agent.volumes.model.sources import FoundClaim
from nodelib.errors import Temporary
from nodelib.json_values import Json

_PROTECTED = "kubernetes.io/pvc-protection"


def claim_name(pod: Pod, volume: Json) -> str:
    """The claim that a volume of the pod names, or that is made for it (ephemeral); "" for other volumes."""
    if source := volume.get("persistentVolumeClaim"):
        return str(source.get("claimName") or "")
    return f"{pod.name}-{volume['name']}" if volume.get("ephemeral") is not None else ""


def usable_volume(pod: Pod, name: str, claim: str, found: FoundClaim | None, *, ephemeral: bool) -> Json:
    """The PersistentVolume behind volume `name` of the pod. `ephemeral`: the claim must have been made for this pod.

    Raises Temporary.
    """
    problem = _claim_problem(claim, found)
    if not problem and found is not None and ephemeral and not _is_for(pod, found.claim):
        raise _unusable(
            pod,
            name,
            f"PVC {pod.namespace}/{claim} was not created for pod {pod.full_name} (pod is not owner)",
            f"Rename the pod or the claim: {pod.namespace}/{claim} belongs to somebody else.",
        )
    problem = problem or _volume_problem(found)
    if problem or found is None or found.volume is None:
        action = f"Bind claim {pod.namespace}/{claim} to a volume (`kubectl describe pvc -n {pod.namespace} {claim}`)."
        raise _unusable(pod, name, f"error processing PVC {pod.namespace}/{claim}: {problem}", action)
    return found.volume


def sole_volume(found: FoundClaim) -> str:
    """The PersistentVolume's name if one pod at a time may use it (ReadWriteOncePod and no other mode), else ""."""
    volume = found.volume or {}
    modes = (volume.get("spec") or {}).get("accessModes") or []
    return str((volume.get("metadata") or {}).get("name") or "") if modes == ["ReadWriteOncePod"] else ""


def in_use(pod: Pod, volume: Json, holder: str) -> Temporary:
    """Another pod (`holder`: its UID) has this PersistentVolume for itself."""
    step = "MapVolume.SetUpDevice" if volume["spec"].get("volumeMode") == "Block" else "MountVolume.SetUp"
    return Temporary(
        f'{step} failed for volume "{volume["metadata"]["name"]}" : '
        "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
        obj=f"pod {pod.full_name}",
        action=f"End the pod with UID {holder} first, or use another access mode.",
    )


def _claim_problem(claim: str, found: FoundClaim | None) -> str:
    if found is None:
        return f'failed to fetch PVC from API server: persistentvolumeclaims "{claim}" not found'
    meta = found.claim.get("metadata") or {}
    if meta.get("deletionTimestamp") and _PROTECTED not in (meta.get("finalizers") or []):
        return "PVC is being deleted"
    if (found.claim.get("status") or {}).get("phase") != "Bound":
        return "PVC is not bound"
    return "" if _volume_name(found) else "PVC has empty pvc.Spec.VolumeName"


def _volume_problem(found: FoundClaim | None) -> str:
    if found is None:
        return ""
    name, uid = _volume_name(found), str((found.claim.get("metadata") or {}).get("uid") or "")
    if found.volume is None:
        return f'failed to fetch PV {name} from API server: persistentvolumes "{name}" not found'
    ref = (found.volume.get("spec") or {}).get("claimRef")
    if ref is None:
        return f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
    owner = str(ref.get("uid") or "")
    if owner == uid:
        return ""
    return f"found PV object {name} but its pv.Spec.ClaimRef.UID {owner} does not point to claim.UID {uid}"


def _volume_name(found: FoundClaim) -> str:
    return str((found.claim.get("spec") or {}).get("volumeName") or "")


def _is_for(pod: Pod, claim: Json) -> bool:
    owners = (claim.get("metadata") or {}).get("ownerReferences") or []
    return any(one.get("controller") and one.get("uid") == pod.uid for one in owners)


def _unusable(pod: Pod, name: str, problem: str, action: str) -> Temporary:
    return Temporary(problem, obj=f"pod {pod.full_name}", step=f'volume "{name}"', action=action)
