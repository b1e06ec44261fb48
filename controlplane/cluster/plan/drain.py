"""Which pods leave a node before it is removed, and which are in the way. Pure.

Follows the filters of k8s.io/kubectl/pkg/drain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nodelib.json_values import Json

_MIRROR = "kubernetes.io/config.mirror"
_SHOWN = 5  # pods that an error names


@dataclass(frozen=True, slots=True)
class Drain:
    """`evict`: pods that something makes again elsewhere; `alone`: pods that nothing makes again."""

    evict: tuple[Json, ...] = ()
    alone: tuple[Json, ...] = ()


def plan_drain(pods: Iterable[Json]) -> Drain:
    """What to do with the pods of a node. Those of DaemonSets and of manifests go with the node itself."""
    evict: list[Json] = []
    alone: list[Json] = []
    for pod in pods:
        owner = _controller(pod)
        if _MIRROR in (pod["metadata"].get("annotations") or {}) or owner == "DaemonSet":
            continue
        finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        (evict if owner or finished else alone).append(pod)
    return Drain(tuple(evict), tuple(alone))


def _controller(pod: Json) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(one.get("kind", "")) for one in owners if one.get("controller")), "")


def name_of(pod: Json) -> str:
    """namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def names(pods: Iterable[Json]) -> str:
    """Their names in one line, the first ones if there are many."""
    found = sorted(map(name_of, pods))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
