"""Decide the volume mounts of a container. Follows makeMounts of pkg/kubelet/kubelet_pods.go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.common.model.pods import Pod
from agent.containers.model import MountPlan
from agent.containers.plan.expand import expand_sub_path
from agent.volumes.model.volumes import MountedVolume, SubPath
from nodelib.errors import Invalid, Permanent
from nodelib.json_values import Json

BIDIRECTIONAL = "PROPAGATION_BIDIRECTIONAL"
_PROPAGATION = {
    None: "PROPAGATION_PRIVATE",
    "None": "PROPAGATION_PRIVATE",
    "HostToContainer": "PROPAGATION_HOST_TO_CONTAINER",
    "Bidirectional": BIDIRECTIONAL,
}
ETC_HOSTS = "/etc/hosts"


def plan_mounts(
    pod: Pod,
    container: Json,
    volumes: Mapping[str, MountedVolume],
    env: Mapping[str, str],
    *,
    recursive_read_only: bool,
    selinux: bool = False,
) -> list[MountPlan]:
    """One plan per volumeMount. `recursive_read_only`: the pod's runtime handler supports it.

    With `selinux`, the first mount of each volume in the container gives its files the container's context.
    """
    plans = [
        _plan(pod, container, index, mount, volumes, env, recursive_read_only)
        for index, mount in enumerate(container.get("volumeMounts") or [])
    ]
    firsts = {plan.name: index for index, plan in reversed(list(enumerate(plans)))} if selinux else {}
    return [
        replace(plan, relabels=volumes[plan.name].relabels) if firsts.get(plan.name) == index else plan
        for index, plan in enumerate(plans)
    ]


def plan_devices(pod: Pod, container: Json, volumes: Mapping[str, MountedVolume]) -> list[Json]:
    """CRI Devices for the container's volumeDevices (makeBlockVolumes of kubelet_pods.go)."""
    made: list[Json] = []
    for device in container.get("volumeDevices") or []:
        volume = volumes.get(device.get("name", ""))
        if volume is None or not volume.block:
            raise Permanent(
                f'volume "{device.get("name")}" is not a block volume for container "{container["name"]}"',
                obj=f"pod {pod.full_name}",
                action="Declare it in spec.volumes, with a claim of volumeMode Block.",
            )
        rights = "r" if volume.read_only else "mrw"
        made.append({"container_path": device["devicePath"], "host_path": volume.path, "permissions": rights})
    return made


def mounts_etc_hosts(container: Json) -> bool:
    """Whether the container mounts a file of its own there: the managed one is left out then."""
    return any(mount.get("mountPath") == ETC_HOSTS for mount in container.get("volumeMounts") or [])


def _plan(
    pod: Pod,
    container: Json,
    index: int,
    mount: Json,
    volumes: Mapping[str, MountedVolume],
    env: Mapping[str, str],
    rro: bool,
) -> MountPlan:
    name = mount.get("name", "")
    volume = volumes.get(name)
    if volume is None:
        raise Permanent(
            f'cannot find volume "{name}" to mount into container "{container["name"]}"',
            obj=f"pod {pod.full_name}",
            action="Declare the volume in spec.volumes.",
        )
    if volume.block:
        raise Permanent(
            f'volume "{name}" has volumeMode Block, but is specified in volumeMounts',
            obj=f"pod {pod.full_name}",
            action="Name it in volumeDevices, or use a claim of volumeMode Filesystem.",
        )
    propagation = _PROPAGATION.get(mount.get("mountPropagation"))
    if propagation is None:
        raise Invalid(f'invalid MountPropagation mode: "{mount["mountPropagation"]}"', obj=f"pod {pod.full_name}")
    sub_path = _sub_path(pod, mount, env)
    path = mount.get("mountPath", "")
    return MountPlan(
        name=name,
        container_path=path if path.startswith("/") else f"/{path}",
        host_path="" if volume.image or sub_path else volume.path,
        sub_path=SubPath(name, sub_path, index) if sub_path and not volume.image else None,
        read_only=bool(mount.get("readOnly")) or volume.read_only,
        recursive_read_only=_recursive_read_only(pod, mount, rro),
        propagation=propagation,
        image=volume.image,
        image_ref=volume.image_ref,
        image_sub_path=sub_path if volume.image else "",
    )


def _sub_path(pod: Pod, mount: Json, env: Mapping[str, str]) -> str:
    path = mount.get("subPath") or ""
    if mount.get("subPathExpr"):
        path = expand_sub_path(mount["subPathExpr"], env)
    if path.startswith("/"):
        raise Invalid(f"error SubPath `{path}` must not be an absolute path", obj=f"pod {pod.full_name}")
    if ".." in path.split("/"):
        raise Invalid(f"unable to provision SubPath `{path}`: must not contain '..'", obj=f"pod {pod.full_name}")
    if "\0" in path:
        raise Invalid("a SubPath must not contain a NUL byte", obj=f"pod {pod.full_name}")
    return str(path)


def _recursive_read_only(pod: Pod, mount: Json, supported: bool) -> bool:
    mode = mount.get("recursiveReadOnly")
    if mode in (None, "Disabled"):
        return False
    problem = ""
    if not mount.get("readOnly"):
        problem = "but it is not read-only"
    elif mount.get("mountPropagation") not in (None, "None"):
        problem = f'but it is not compatible with propagation "{mount["mountPropagation"]}"'
    elif mode not in ("IfPossible", "Enabled"):
        problem = f'but the mode "{mode}" is unknown'
    elif mode == "Enabled" and not supported:
        problem = "but it is not supported by the runtime"
    if problem:
        raise Permanent(
            f'volume "{mount.get("name")}" requested recursive read-only mode, {problem}', obj=f"pod {pod.full_name}"
        )
    return supported
