"""How many mounts the pods of a namespace have together: they are out of the node's, of which all others need some."""

from __future__ import annotations

from collections import Counter

from agent.common.model.pods import Pod
from agent.volumes.plan.own_mounts import own_mounts
from nodelib.errors import Temporary

MOST_OF_NAMESPACE = 5000


class MountPlaces:
    """Of the pods whose volumes are mounted, or will be."""

    def __init__(self) -> None:
        self._of_pods: dict[str, tuple[str, int]] = {}  # namespace and mounts, by UID
        self._of_namespaces: Counter[str] = Counter()

    def take(self, pod: Pod) -> None:
        """The places of the pod, as it is now. Raises Invalid for too many of one pod, Temporary while the others of
        its namespace have taken them."""
        count = own_mounts(pod)
        self.leave(pod.uid)
        taken = self._of_namespaces[pod.namespace]
        if count and taken + count > MOST_OF_NAMESPACE:
            raise Temporary(
                f"the pods of namespace {pod.namespace} have {taken} mounts on this node already, and it needs {count}:"
                f" {MOST_OF_NAMESPACE} are the most",
                obj=f"pod {pod.full_name}",
                step="volumes",
                action="Mount whole volumes instead of sub paths, or end pods; it is tried again.",
            )
        self._of_pods[pod.uid] = (pod.namespace, count)
        self._of_namespaces[pod.namespace] += count

    def leave(self, uid: str) -> None:
        """The pod's volumes are unmounted."""
        namespace, count = self._of_pods.pop(uid, ("", 0))
        self._of_namespaces[namespace] -= count
        if not self._of_namespaces[namespace]:
            del self._of_namespaces[namespace]
