"""How many mounts of the node a pod has. Linux has 100,000 for all pods of a node together (fs.mount-max), and copies
all of them for each container that starts. Upstream has no bound.
"""

from __future__ import annotations

from agent.common.model.pods import Pod
from nodelib.errors import Invalid
from nodelib.json_values import Json

MOST_OF_POD = 1000
_MOUNTED = ("secret", "downwardAPI", "projected", "csi", "ephemeral", "persistentVolumeClaim")


def own_mounts(pod: Pod) -> int:
    """Volumes that are mounts, and sub paths, each of which is one. Raises Invalid for more than MOST_OF_POD."""
    count = sum(map(_is_mounted, pod.spec.get("volumes") or []))
    for _, container in pod.containers():
        count += sum(_has_sub_path(mount) for mount in container.get("volumeMounts") or [])
    if count > MOST_OF_POD:
        raise Invalid(
            f"its volumes and sub paths are {count} mounts, more than {MOST_OF_POD}",
            obj=f"pod {pod.full_name}",
            step="volumes",
            action="Mount whole volumes instead of sub paths, or put more into one volume.",
        )
    return count


def _is_mounted(volume: Json) -> bool:
    return any(volume.get(kind) is not None for kind in _MOUNTED) or bool((volume.get("emptyDir") or {}).get("medium"))


def _has_sub_path(mount: Json) -> bool:
    return bool(mount.get("subPath") or mount.get("subPathExpr"))
