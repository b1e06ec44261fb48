"""Decide how each volume of a pod is made, and what must be fetched for it.

Sizes and media follow pkg/volume/emptydir and the wrapped volumes of pkg/volume/{secret,configmap,
projected,downwardapi}; nested mount points pkg/volume/util/nested_volumes.go.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.resources.plan import cgroups
from agent.volumes.model.sources import (
    CONFIG_MAP,
    SECRET,
    CertificateProjection,
    ObjectRef,
    SourceRefs,
    TokenRequest,
    TrustBundleProjection,
    VolumeSources,
)
from agent.volumes.model.volumes import AtomicVolume, EmptyDir, HostPath, ImageVolume, VolumePlan
from agent.volumes.plan import claims, csi, expand, local_volumes, payload, sizes
from nodelib import quantity
from nodelib.errors import Invalid, NodewrightError, Permanent
from nodelib.json_values import Json

_OBJECT_VOLUMES = frozenset({"configMap", "secret", "projected", "downwardAPI", "emptyDir"})
_MOST_NESTED = 10_000  # of a pod; more could not be mounted (fs.mount-max)
_HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")


def source_refs(pod: Pod) -> SourceRefs:
    """What must be fetched before plan_volumes() can be called."""
    objects: set[ObjectRef] = set()
    tokens: set[TokenRequest] = set()
    bundles: set[TrustBundleProjection] = set()
    wanted: set[str] = set()
    certificates: set[CertificateProjection] = set()
    for volume in pod.spec.get("volumes") or []:
        if source := volume.get("configMap"):
            objects.add(ObjectRef(CONFIG_MAP, source.get("name", "")))
        if source := volume.get("secret"):
            objects.add(ObjectRef(SECRET, source.get("secretName", "")))
        if claim := claims.claim_name(pod, volume):
            wanted.add(claim)
        for index, part in enumerate((volume.get("projected") or {}).get("sources") or []):
            for key, kind in (("configMap", CONFIG_MAP), ("secret", SECRET)):
                if part.get(key):
                    objects.add(ObjectRef(kind, part[key].get("name", "")))
            if part.get("serviceAccountToken"):
                tokens.add(payload.token_request(part["serviceAccountToken"]))
            if part.get("clusterTrustBundle"):
                bundles.add(payload.trust_bundle_projection(part["clusterTrustBundle"]))
            if part.get("podCertificate"):
                certificates.add(payload.certificate_projection(volume["name"], index, part["podCertificate"]))
    known = frozenset(ref for ref in objects if ref.name)
    return SourceRefs(known, frozenset(tokens), frozenset(bundles), frozenset(wanted), frozenset(certificates))


def needs_only_objects_and_tokens(pod: Pod, refs: SourceRefs) -> bool:
    """Whether the volumes need nothing but objects, tokens and directories: no driver, host path or image."""
    if refs.claims or refs.certificates or refs.bundles:
        return False
    return all(_only_objects_and_tokens(volume) for volume in pod.spec.get("volumes") or [])


def objects_suffice(pod: Pod, objects: Mapping[ObjectRef, Json | None], refs: SourceRefs, node: NodeContext) -> bool:
    """Whether the volumes can be made from these objects once there are tokens."""
    sources = VolumeSources(objects=dict(objects), tokens=dict.fromkeys(refs.tokens, "-"))
    try:
        plan_volumes(pod, sources, node)
    except NodewrightError:
        return False
    return True


def _only_objects_and_tokens(volume: Json) -> bool:
    kinds = {key for key, value in volume.items() if key != "name" and value is not None}
    medium = str((volume.get("emptyDir") or {}).get("medium") or "")
    return kinds <= _OBJECT_VOLUMES and not medium.startswith("HugePages")


def plan_volumes(pod: Pod, sources: VolumeSources, node: NodeContext) -> list[VolumePlan]:
    """One plan per volume. Raises Temporary for what may still appear, Permanent or Invalid for what cannot work."""
    sizes.check(pod, sources)
    nested, memory = nested_mount_points(pod), _memory_size(pod, node)
    plans = [_plan(pod, volume, sources, node) for volume in pod.spec.get("volumes") or []]
    return [_completed(plan, nested, memory) for plan in plans]


def _completed(plan: VolumePlan, nested: Mapping[str, tuple[str, ...]], memory: int) -> VolumePlan:
    """With what is found out once for all volumes of a pod: mounts in them, and the most they may be in memory."""
    if isinstance(plan, AtomicVolume):
        return replace(plan, nested=nested.get(plan.name, ()), size=memory if plan.in_memory else 0)
    if isinstance(plan, EmptyDir) and plan.medium == "Memory":
        return replace(plan, size=_smaller(memory, plan.size))
    return plan


def with_used_volumes(pod: Pod) -> Pod:
    """The pod with those of its volumes that containers mount: as upstream (GetPodVolumeNames), none waits for others.

    An image stays: it is pulled in any case.
    """
    declared: list[Json] = pod.spec.get("volumes") or []
    names = set(mounted_names(*(container for _, container in pod.containers())))
    used = [one for one in declared if one.get("name") in names or one.get("image") is not None]
    if len(used) == len(declared):
        return pod
    return replace(pod, raw={**pod.raw, "spec": {**pod.spec, "volumes": used}})


def mounted_names(*containers: Json) -> list[str]:
    """Names of the volumes that containers mount, as file systems or devices, or take environment variables from."""
    fields = (container.get(key) or [] for container in containers for key in ("volumeMounts", "volumeDevices"))
    mounted = [str(one.get("name")) for found in fields for one in found]
    variables = (one.get("valueFrom") or {} for container in containers for one in container.get("env") or [])
    return mounted + [str(source["fileKeyRef"].get("volumeName")) for source in variables if source.get("fileKeyRef")]


def sole_volumes(pod: Pod, sources: VolumeSources) -> list[Json]:
    """The PersistentVolumes of the pod that no other pod may use meanwhile."""
    found = (sources.claims.get(claims.claim_name(pod, volume)) for volume in pod.spec.get("volumes") or [])
    return [one.volume for one in found if one is not None and one.volume is not None and claims.sole_volume(one)]


def plan_updates(pod: Pod, sources: VolumeSources, node: NodeContext) -> tuple[list[VolumePlan], list[NodewrightError]]:
    """Plans of the volumes that can be updated now, and the errors of the others."""
    plans: list[VolumePlan] = []
    problems: list[NodewrightError] = []
    try:
        sizes.check(pod, sources)
    except Invalid as error:
        return [], [error]
    for volume in pod.spec.get("volumes") or []:
        try:
            plans.append(_plan(pod, volume, sources, node))
        except NodewrightError as error:
            problems.append(error)
    return plans, problems


def _plan(pod: Pod, volume: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    for key, planner in _PLANNERS.items():
        if volume.get(key) is not None:
            return planner(pod, volume["name"], volume[key] or {}, sources, node)
    kinds = [key for key, value in volume.items() if key != "name" and value is not None]
    if not kinds:
        return EmptyDir(volume["name"], fs_group=payload.fs_group(pod))
    raise Permanent(
        f"the volume type {kinds[0]} is not supported by this agent",
        obj=f"pod {pod.full_name}",
        step=f'volume "{volume["name"]}"',
        action="Use emptyDir, configMap, secret, downwardAPI, projected, hostPath, image, csi "
        "or a claim bound to a csi, local or hostPath volume.",
    )


def _empty_dir(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    medium, group = source.get("medium") or "", payload.fs_group(pod)
    limit = quantity.value(source.get("sizeLimit") or "0")
    mode = source.get("mode") if node.volumes.directory_modes else None
    if medium in ("", "Memory"):
        return EmptyDir(name, medium, limit, group, mode=mode)
    if medium == "HugePages" or medium.startswith("HugePages-"):
        return EmptyDir(name, "HugePages", limit, group, _page_size(pod, name, medium), mode)
    raise Invalid(
        f'unknown storage medium "{medium}"',
        obj=f"pod {pod.full_name}",
        step=f'volume "{name}"',
        action="Leave it out for the node's disk, or use Memory or HugePages.",
    )


def _config_map(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    ref = ObjectRef(CONFIG_MAP, source.get("name", ""))
    defaults = payload.file_defaults(source, node)
    files = payload.object_files(pod, name, ref, source, sources.objects.get(ref), defaults)
    return _atomic(pod, name, "kubernetes.io~configmap", files, node, in_memory=False)


def _secret(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    ref = ObjectRef(SECRET, source.get("secretName", ""))
    defaults = payload.file_defaults(source, node)
    files = payload.object_files(pod, name, ref, source, sources.objects.get(ref), defaults)
    return _atomic(pod, name, "kubernetes.io~secret", files, node)


def _downward(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    files = payload.downward_files(pod, source, node, payload.file_defaults(source, node))
    return _atomic(pod, name, "kubernetes.io~downward-api", files, node)


def _projected(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    files = payload.projected_files(pod, name, source, sources, node)
    return _atomic(pod, name, "kubernetes.io~projected", files, node)


def _host_path(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    path, kind = source.get("path") or "", source.get("type") or ""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise Invalid(
            f"hostPath {path!r} must be an absolute path without '..'",
            obj=f"pod {pod.full_name}",
            step=f'volume "{name}"',
            action="Write the path as it is on the node.",
        )
    if kind not in _HOST_PATH_TYPES:
        raise Invalid(
            f"{kind!r} is an invalid volume type",
            obj=f"pod {pod.full_name}",
            step=f'volume "{name}"',
            action=f"Use one of {', '.join(_HOST_PATH_TYPES[1:])}, or none.",
        )
    return HostPath(name, posixpath.normpath(path), kind)


def _image(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    return ImageVolume(name, source.get("reference") or "", source.get("pullPolicy") or "IfNotPresent")


def _claim(
    pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext, *, ephemeral: bool = False
) -> VolumePlan:
    claim = f"{pod.name}-{name}" if ephemeral else source.get("claimName") or ""
    found = sources.claims.get(claim)
    volume = claims.usable_volume(pod, name, claim, found, ephemeral=ephemeral)
    spec = volume.get("spec") or {}
    read_only = bool(source.get("readOnly"))
    if spec.get("csi"):
        has = expand.has_size(found.claim) if found is not None else 0
        return csi.claimed_volume(pod, name, claim, volume, read_only=read_only, claim_size=has)
    if spec.get("local"):
        return local_volumes.local_volume(pod, name, claim, volume, read_only=read_only)
    if spec.get("volumeMode") == "Block":
        raise _unsupported_volume(pod, name, claim, "a raw block device that is neither local nor CSI")
    if host_path := spec.get("hostPath"):
        return HostPath(name, host_path.get("path") or "", host_path.get("type") or "", read_only)
    kinds = [key for key in spec if key in ("nfs", "iscsi", "fc", "awsElasticBlockStore", "gcePersistentDisk")]
    raise _unsupported_volume(pod, name, claim, kinds[0] if kinds else "of an unknown type")


def _csi(pod: Pod, name: str, source: Json, sources: VolumeSources, node: NodeContext) -> VolumePlan:
    return csi.inline_volume(pod, name, source)


_Planner = Callable[[Pod, str, Json, VolumeSources, NodeContext], VolumePlan]
_PLANNERS: dict[str, _Planner] = {
    "emptyDir": _empty_dir,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
    "hostPath": _host_path,
    "image": _image,
    "persistentVolumeClaim": _claim,
    "ephemeral": partial(_claim, ephemeral=True),
    "csi": _csi,
}


def _atomic(
    pod: Pod, name: str, plugin: str, files: payload.Files, node: NodeContext, *, in_memory: bool = True
) -> AtomicVolume:
    return AtomicVolume(name, plugin, files, in_memory, fs_group=payload.fs_group(pod))


def nested_mount_points(pod: Pod) -> dict[str, tuple[str, ...]]:
    """By volume: directories, relative to it, on which containers of the pod mount other volumes.

    Raises Invalid when there are too many. The time grows with the number of mounts and of what is found.
    """
    found: dict[str, dict[str, None]] = {}
    count = 0
    for _, container in pod.containers():
        mounts = [(_parts(mount.get("mountPath", "")), mount) for mount in container.get("volumeMounts") or []]
        paths = sorted({path for path, _ in mounts})
        bases = {(m["name"], path) for path, m in mounts if not m.get("subPath") and not m.get("subPathExpr")}
        for volume, base in sorted(bases):
            at = bisect_right(paths, base)
            while at < len(paths) and paths[at][: len(base)] == base:
                found.setdefault(volume, {})["/".join(paths[at][len(base) :])] = None
                at = bisect_left(paths, (*paths[at][:-1], f"{paths[at][-1]}\0"))  # behind all that is below it
                count += 1
                if count > _MOST_NESTED:
                    raise Invalid(
                        f"more than {_MOST_NESTED} volumes are mounted in one another",
                        obj=f"pod {pod.full_name}",
                        step=f"mounts of container {container['name']}",
                        action="Mount fewer volumes below the mount paths of others.",
                    )
    return {volume: tuple(names) for volume, names in found.items()}


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(f"/{path.lstrip('/')}").split("/") if part)


def _memory_size(pod: Pod, node: NodeContext) -> int:
    size = quantity.value(node.allocatable.get("memory", "0"))
    return _smaller(size, cgroups.limits_of_pod(pod, cgroups.Policy()).memory or 0)


def _smaller(size: int, limit: int) -> int:
    """0 means none."""
    return min(size, limit) if size > 0 and limit > 0 else max(size, limit, 0)


def _page_size(pod: Pod, name: str, medium: str) -> int:
    """In bytes: the size that the medium names, or the only one that the containers request."""
    if medium != "HugePages":
        return quantity.value(medium.removeprefix("HugePages-"))
    asked = {
        resource.removeprefix("hugepages-")
        for _, container in pod.containers()
        for resource in ((container.get("resources") or {}).get("requests") or {})
        if resource.startswith("hugepages-")
    }
    if len(asked) != 1:
        raise Invalid(
            "medium HugePages needs containers that request huge pages of one size",
            obj=f"pod {pod.full_name}",
            step=f'volume "{name}"',
            action="Request hugepages-2Mi, or name the size: medium HugePages-2Mi.",
        )
    return quantity.value(asked.pop())


def _unsupported_volume(pod: Pod, name: str, claim: str, kind: str) -> Permanent:
    return Permanent(
        f"claim {claim} is bound to a volume ({kind}) that this agent does not support",
        obj=f"pod {pod.full_name}",
        step=f'volume "{name}"',
        action="Use a PersistentVolume of type csi, local or hostPath.",
    )
