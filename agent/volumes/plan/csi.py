"""CSI volumes: what the API objects specify, and the requests to the driver.

Follows pkg/volume/csi (csi_mounter.go, csi_attacher.go, csi_block.go, csi_client.go) and the CSI specification 1.x.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from agent.common.model.pods import Pod
from agent.volumes.model.csi import MOUNT_GROUP, MULTI_WRITER, STAGE, CsiSecrets, CsiVolume, DriverFacts, SecretRef
from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan import payload
from agent.volumes.plan.csi_node import update_period
from nodelib import quantity
from nodelib.errors import Permanent
from nodelib.json_values import Json

PLUGIN = "kubernetes.io~csi"
_RESOURCE_EXHAUSTED = 8  # of gRPC
_PLAIN_MODES = {"ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5, "ReadWriteOncePod": 1}
_FINE_MODES = {**_PLAIN_MODES, "ReadWriteOnce": 7, "ReadWriteOncePod": 6}
_TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"


def inline_volume(pod: Pod, name: str, source: Json) -> CsiVolume:
    """spec.volumes[].csi: a volume that is deleted with the pod."""
    ref = (source.get("nodePublishSecretRef") or {}).get("name")
    return CsiVolume(
        name=name,
        spec_name=name,
        driver=source.get("driver") or "",
        handle=f"csi-{_digest(pod.uid, name)}",
        ephemeral=True,
        read_only=bool(source.get("readOnly")),
        fs_type=source.get("fsType") or "",
        attributes=source.get("volumeAttributes") or {},
        publish_secret=SecretRef(pod.namespace, ref) if ref else None,
        fs_group=payload.fs_group(pod),
        fs_group_policy=fs_group_change_policy(pod),
    )


def claimed_volume(pod: Pod, name: str, claim: str, volume: Json, *, read_only: bool, claim_size: int = 0) -> CsiVolume:
    """A claim that is bound to the PersistentVolume `volume`, and whose status says that it has `claim_size` bytes."""
    spec = volume["spec"]
    source = spec["csi"]
    return CsiVolume(
        name=name,
        spec_name=volume["metadata"]["name"],
        driver=source.get("driver") or "",
        handle=source.get("volumeHandle") or "",
        read_only=read_only,  # the PersistentVolume's own readOnly is for the controller
        block=spec.get("volumeMode") == "Block",
        fs_type=source.get("fsType") or "",
        attributes=source.get("volumeAttributes") or {},
        access_modes=tuple(spec.get("accessModes") or ()),
        mount_options=tuple(spec.get("mountOptions") or ()),
        publish_secret=_secret(source, "nodePublishSecretRef"),
        stage_secret=_secret(source, "nodeStageSecretRef"),
        expand_secret=_secret(source, "nodeExpandSecretRef"),
        fs_group=payload.fs_group(pod),
        fs_group_policy=fs_group_change_policy(pod),
        claim=claim,
        claim_size=claim_size,
        size=quantity.value((spec.get("capacity") or {}).get("storage") or "0"),
    )


def grew_unused(volume: CsiVolume) -> bool:
    """Whether the PersistentVolume is larger than the claim says it has: the node has to grow it, too."""
    return volume.claim != "" and volume.size > volume.claim_size


def is_attach_limit(attachment: Json | None, driver: Json | None) -> bool:
    """Whether it is not attached because the node has as many as it can (csi_plugin.go, VerifyExhaustedResource)."""
    error = ((attachment or {}).get("status") or {}).get("attachError") or {}
    return error.get("errorCode") == _RESOURCE_EXHAUSTED and update_period(driver) is not None


def fs_group_change_policy(pod: Pod) -> str:
    return (pod.spec.get("securityContext") or {}).get("fsGroupChangePolicy") or "Always"


def check_lifecycle(volume: CsiVolume, driver: Json | None) -> None:
    """Raises Permanent when the CSIDriver object does not support this kind of volume."""
    spec = (driver or {}).get("spec") or {}
    offered = spec.get("volumeLifecycleModes") or ["Persistent"]
    mode = "Ephemeral" if volume.ephemeral else "Persistent"
    if mode not in offered:
        why = "the CSIDriver object does not list it" if driver else "there is no CSIDriver object"
        raise Permanent(
            f'volume mode "{mode}" not supported by driver {volume.driver} ({why})',
            action=f"Add {mode} to volumeLifecycleModes of CSIDriver {volume.driver}, or use another kind of volume.",
        )


def needs_attachment(volume: CsiVolume, driver: Json | None) -> bool:
    """Whether a controller must attach the volume first; true when there is no CSIDriver object."""
    return not volume.ephemeral and attaches(driver)


def attaches(driver: Json | None) -> bool:
    """Whether a controller attaches the volumes of this CSIDriver; true when there is no such object."""
    return ((driver or {}).get("spec") or {}).get("attachRequired") is not False


def attachment_name(volume: CsiVolume, node: str) -> str:
    """The name that the attach/detach controller gives its VolumeAttachment."""
    return f"csi-{_digest(volume.handle, volume.driver, node)}"


def token_requests(driver: Json | None) -> tuple[TokenRequest, ...]:
    wanted = ((driver or {}).get("spec") or {}).get("tokenRequests") or ()
    return tuple(TokenRequest(one.get("audience") or "", int(one.get("expirationSeconds") or 3600)) for one in wanted)


def republishes(driver: Json | None) -> bool:
    return bool(((driver or {}).get("spec") or {}).get("requiresRepublish"))


def applies_fs_group(volume: CsiVolume, driver: Json | None, facts: DriverFacts) -> bool:
    """Whether the agent itself must give the volume to the pod's fsGroup."""
    policy = ((driver or {}).get("spec") or {}).get("fsGroupPolicy") or "ReadWriteOnceWithFSType"
    if volume.fs_group is None or volume.read_only or volume.block or MOUNT_GROUP in facts.capabilities:
        return False
    if policy != "ReadWriteOnceWithFSType":
        return bool(policy == "File")
    one_writer = not {"ReadWriteOnce", "ReadWriteOncePod"}.isdisjoint(volume.access_modes)
    return volume.fs_type != "" and (volume.ephemeral or one_writer)


def stage_request(
    volume: CsiVolume, facts: DriverFacts, path: str, context: Mapping[str, str], secrets: CsiSecrets
) -> Json:
    return {
        "volume_id": volume.handle,
        "publish_context": dict(context),
        "staging_target_path": path,
        "volume_capability": capability(volume, facts),
        "secrets": dict(secrets.stage),
        "volume_context": dict(volume.attributes),
    }


def publish_request(
    volume: CsiVolume,
    facts: DriverFacts,
    *,
    target: str,
    staging: str,
    context: Mapping[str, str],
    volume_context: Mapping[str, str],
    secrets: Mapping[str, str],
) -> Json:
    """NodePublishVolume; `staging` counts only for a driver that stages."""
    return {
        "volume_id": volume.handle,
        "publish_context": dict(context),
        "staging_target_path": staging if stages(volume, facts) else "",
        "target_path": target,
        "volume_capability": capability(volume, facts),
        "readonly": volume.read_only,
        "secrets": dict(secrets),
        "volume_context": dict(volume_context),
    }


def expand_request(
    volume: CsiVolume, facts: DriverFacts, *, target: str, staging: str, size: int, secrets: Mapping[str, str]
) -> Json:
    """NodeExpandVolume; `size` in bytes."""
    return {
        "volume_id": volume.handle,
        "volume_path": target,
        "capacity_range": {"required_bytes": size},
        "staging_target_path": staging if stages(volume, facts) else "",
        "volume_capability": capability(volume, facts, mounting=False),
        "secrets": dict(secrets),
    }


def stages(volume: CsiVolume, facts: DriverFacts) -> bool:
    return STAGE in facts.capabilities and not volume.ephemeral


def capability(volume: CsiVolume, facts: DriverFacts, *, mounting: bool = True) -> Json:
    """csi.v1 VolumeCapability; to mount it, with its context, and the pod's fsGroup for a driver that applies that.

    The context is quoted, because it may have commas.
    """
    modes = _FINE_MODES if MULTI_WRITER in facts.capabilities else _PLAIN_MODES
    mode = modes.get(next(iter(volume.access_modes), "ReadWriteOnce"), 0)
    if volume.block:
        return {"block": {}, "access_mode": {"mode": mode}}
    flags = [*volume.mount_options, *([f'context="{volume.context}"'] if mounting and volume.context else [])]
    mount: Json = {"fs_type": volume.fs_type, "mount_flags": flags}
    if mounting and MOUNT_GROUP in facts.capabilities and volume.fs_group is not None:
        mount["volume_mount_group"] = str(volume.fs_group)
    return {"mount": mount, "access_mode": {"mode": mode}}


def publish_contexts(
    volume: CsiVolume, pod: Pod, driver: Json | None, tokens: Mapping[TokenRequest, Json], secrets: CsiSecrets
) -> tuple[dict[str, str], dict[str, str]]:
    """volume_context and secrets of NodePublishVolume, with pod and tokens where the CSIDriver asks for them.

    `tokens`: the status of each TokenRequest.
    """
    spec = (driver or {}).get("spec") or {}
    context, published_secrets = dict(volume.attributes), dict(secrets.publish)
    if spec.get("podInfoOnMount"):
        context |= {
            "csi.storage.k8s.io/pod.name": pod.name,
            "csi.storage.k8s.io/pod.namespace": pod.namespace,
            "csi.storage.k8s.io/pod.uid": pod.uid,
            "csi.storage.k8s.io/serviceAccount.name": str(pod.spec.get("serviceAccountName") or ""),
            "csi.storage.k8s.io/ephemeral": str(volume.ephemeral).lower(),
        }
    if tokens:
        text = json.dumps({need.audience: status for need, status in tokens.items()}, sort_keys=True)
        (published_secrets if spec.get("serviceAccountTokenInSecrets") else context)[_TOKENS] = text
    return context, published_secrets


def volume_data(volume: CsiVolume, node: str) -> dict[str, str]:
    """vol_data.json of a pod's volume, with upstream's keys: either kubelet can replace the other on a node."""
    return {
        **context_data(volume),
        "specVolID": volume.spec_name,
        "volumeHandle": volume.handle,
        "driverName": volume.driver,
        "nodeName": node,
        "volumeLifecycleMode": "Ephemeral" if volume.ephemeral else "Persistent",
        "attachmentID": attachment_name(volume, node),
    }


def staging_data(volume: CsiVolume) -> dict[str, str]:
    """vol_data.json of a staged volume."""
    return {"driverName": volume.driver, "volumeHandle": volume.handle, **context_data(volume)}


def context_data(volume: CsiVolume) -> dict[str, str]:
    return {"seLinuxMountContext": volume.context} if volume.context else {}


def staging_folder(root: str, volume: CsiVolume) -> str:
    """The directory in which a volume is staged once for all pods, with its vol_data.json."""
    base = f"{root}/plugins/kubernetes.io/csi"
    if volume.block:
        return f"{base}/volumeDevices/{volume.spec_name}"
    return f"{base}/{volume.driver}/{hashlib.sha256(volume.handle.encode()).hexdigest()}"


def staging_path(root: str, volume: CsiVolume) -> str:
    """Where a volume is staged, which counts only if its driver stages."""
    return f"{staging_folder(root, volume)}/{'staging' if volume.block else 'globalmount'}"


def is_final_error(code: str) -> bool:
    """Whether a driver that failed with this gRPC code has certainly stopped working on the volume (csi_client.go)."""
    return code not in ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")


class UsageFields(TypedDict, total=False):
    """Fields of FsUsage that a driver reports."""

    available: int
    capacity: int
    used: int
    inodes_free: int
    inodes: int
    inodes_used: int


def usage_stats(usage: Iterable[Mapping[str, Any]]) -> UsageFields:
    """NodeGetVolumeStats as fields of FsUsage; empty when the driver reports nothing."""
    found: UsageFields = {}
    for one in usage:
        if one["unit"] == 1:
            found |= {"available": one["available"], "capacity": one["total"], "used": one["used"]}
        elif one["unit"] == 2:
            found |= {"inodes_free": one["available"], "inodes": one["total"], "inodes_used": one["used"]}
    return found


def _digest(*parts: str) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _secret(source: Json, key: str) -> SecretRef | None:
    ref = source.get(key) or {}
    return SecretRef(ref.get("namespace") or "", ref["name"]) if ref.get("name") else None
