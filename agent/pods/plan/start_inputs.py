"""The inputs of a container's start, and the kill that follows a failed postStart hook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.common.model.pods import Kind, ObservedPod, Pod, SandboxState
from agent.common.model.states import ImageState
from agent.common.plan.restart import MINIMUM_GRACE
from agent.images.plan.images import image_volumes, volume_key
from agent.pods.model.steps import Kill, Start
from agent.volumes.model.volumes import MountedVolume
from nodelib.errors import Permanent
from nodelib.json_values import Json


def ips_for(pod: Pod, sandbox: SandboxState | None, host_ips: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses of a pod in this sandbox; a hostNetwork pod has the host's."""
    if pod.host_network:
        return host_ips
    return sandbox.ips if sandbox is not None else ()


def target_of(step: Start, seen: ObservedPod) -> str:
    """The id of the container whose processes an ephemeral container shares, "": none. Raises Permanent."""
    wanted = step.container.get("targetContainerName")
    if step.kind is not Kind.EPHEMERAL or not wanted:
        return ""
    found = seen.latest(wanted)
    if found is None or not seen.runs(found.id):
        raise Permanent(f'unable to find target container "{wanted}"', action="Name a container that is running.")
    return found.id


def with_volume_images(
    pod: Pod, container: Json, volumes: Mapping[str, MountedVolume], images: Mapping[str, ImageState]
) -> dict[str, MountedVolume]:
    """`volumes` with the ids of their images, so that each mounts the image that was pulled for it, whatever its tag
    means by now.

    Raises Permanent: an image is gone.
    """
    found = dict(volumes)
    for volume in image_volumes(pod, container):
        name, state = volume["name"], images.get(volume_key(volume["name"]))
        if state is None or state.facts is None or name not in found:
            raise Permanent("its image is gone", obj=f"volume {name}", step="mount image")
        found[name] = replace(found[name], image_ref=state.ref)
    return found


def after_failed_hook(pod: Pod, container: Json, container_id: str) -> Kill:
    """The kill of a container whose postStart hook failed; its preStop hook is run."""
    grace = int(pod.spec.get("terminationGracePeriodSeconds") or MINIMUM_GRACE)
    pre_stop = (container.get("lifecycle") or {}).get("preStop")
    return Kill(container_id, str(container["name"]), "FailedPostStartHook", grace, pre_stop)
