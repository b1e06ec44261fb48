"""The SELinux context that a volume is mounted with, which spares the runtime a walk through all of its files.

Follows GetMountSELinuxLabel of pkg/volume/util/selinux.go and the desired state of pkg/kubelet/volumemanager, gates
SELinuxMount, SELinuxMountReadWriteOncePod and SELinuxChangePolicy. Otherwise than there, options without a level give
no context: upstream invents a level then, and the runtime another one, so that the pod could not read its volume.
"""

from __future__ import annotations

import re

from agent.common.model.pods import Pod
from agent.common.model.selinux import Selinux
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.selinux import Context
from nodelib.errors import Invalid
from nodelib.json_values import Json, object_or_empty

ONE_POD = "ReadWriteOncePod"
_MODES = (("ReadWriteMany", "RWX"), ("ReadOnlyMany", "ROX"), ("ReadWriteOnce", "RWO"), (ONE_POD, "RWOP"))
_PARTS = ("user", "role", "type", "level")
_CONTEXT = re.compile(r"[\w.:,-]{1,4096}", re.ASCII)  # it becomes a part of mount options


class MultipleLabels(Invalid):
    """Containers of the pod that share the volume have different contexts."""


def mount_context(pod: Pod, volume: CsiVolume, driver: Json | None, machine: Selinux, *, every_mode: bool) -> Context:
    """How the pod needs the volume. `every_mode`: gate SELinuxMount.

    Raises MultipleLabels, and Invalid for options that make no context.
    """
    contexts = {file_context(options, machine) for options in options_of(pod, volume.name)}
    if len(contexts) > 1:
        raise MultipleLabels(
            f"multiple SELinux labels found: {','.join(sorted(contexts))}",
            obj=f"pod {pod.full_name}",
            step=f'volume "{volume.name}"',
            action="Give the same seLinuxOptions to all containers that mount it.",
        )
    wanted = contexts.pop() if contexts else ""
    if _changes_recursively(pod) or not mounts_with_context(driver):
        return Context()
    return Context(wanted, wanted if is_enforced(volume, every_mode=every_mode) else "")


def options_of(pod: Pod, name: str) -> list[Json]:
    """seLinuxOptions of the containers that mount the volume and have some, of their own or of the pod."""
    of_pod = object_or_empty(pod.spec.get("securityContext")).get("seLinuxOptions")
    found = []
    for _, container in pod.containers():
        if any(mount.get("name") == name for mount in container.get("volumeMounts") or []):
            own = object_or_empty(container.get("securityContext")).get("seLinuxOptions")
            found.append(own if own is not None else of_pod)
    return [options for options in found if options is not None]


def file_context(options: Json, machine: Selinux) -> str:
    """The context of files for processes with these options: user and level are theirs, role and type the policy's.

    Raises Invalid.
    """
    level, default = options.get("level") or "", machine.files.split(":", 3)
    if not level or len(default) < len(_PARTS):
        return ""
    made = ":".join((options.get("user") or default[0], default[1], default[2], level))
    if not _CONTEXT.fullmatch(made):
        raise Invalid(
            f"failed to construct SELinux label from context {made[:200]!r}",
            action="Correct seLinuxOptions.user and seLinuxOptions.level.",
        )
    return made


def is_enforced(volume: CsiVolume, *, every_mode: bool) -> bool:
    """Whether a volume of these access modes is mounted with contexts, and pods that disagree are refused."""
    return not volume.ephemeral and (every_mode or volume.access_modes == (ONE_POD,))


def mounts_with_context(driver: Json | None) -> bool:
    """Of a CSIDriver."""
    return object_or_empty(object_or_empty(driver).get("spec")).get("seLinuxMount") is True


def access_mode(volume: CsiVolume) -> str:
    """As metrics name it: the one that lets the most use it."""
    if volume.ephemeral:
        return "inline"
    return next((short for mode, short in _MODES if mode in volume.access_modes), "")


def conflict(volume: str, theirs: str, ours: str) -> str:
    """Upstream's words."""
    return f'conflicting SELinux labels of volume {volume}: "{theirs}" and "{ours}"'


def waiting(unique_name: str) -> str:
    """Upstream's words."""
    return (
        f'waiting for unmount of volume "{unique_name}", because it is already mounted to a different pod with a '
        "different SELinux label"
    )


def _changes_recursively(pod: Pod) -> bool:
    return object_or_empty(pod.spec.get("securityContext")).get("seLinuxChangePolicy") == "Recursive"
