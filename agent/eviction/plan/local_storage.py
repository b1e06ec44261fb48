"""Limits of ephemeral storage: of an emptyDir, of a pod, of a container (managerImpl.localStorageEviction).

The kernel enforces none of them (except for a tmpfs): a pod that writes more than its limit is evicted.
"""

from __future__ import annotations

from decimal import Decimal

from agent.common.model.eviction import REASON, Eviction
from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.restart import is_sidecar
from agent.eviction.plan.messages import AT_ONCE
from agent.stats.model import ContainerStats, PodStats
from agent.stats.plan.summary import ephemeral_storage, is_measured
from nodelib.quantity import format_exact, parse

_STORAGE = (demand.STORAGE,)


def is_limited(pod: Pod) -> bool:
    """Whether the pod has any such limit, so that it must be measured."""
    return bool(
        _volume_limits(pod) or _container_limits(pod) or demand.pod_limits(pod, only=_STORAGE).get(demand.STORAGE)
    )


def violation(pod: Pod, usage: PodStats, *, image_fs: bool) -> Eviction | None:
    """The pod's eviction if it uses more than it may. `image_fs`: layers are on another disk than logs.

    What could not be measured counts as more than any limit.
    """
    volumes = {volume.name: volume.usage for volume in usage.volumes}
    for name, (limit, text) in _volume_limits(pod).items():
        if name in volumes and (volumes[name].used > limit or volumes[name].unread):
            message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{text}". '
            return Eviction(pod, REASON, message, AT_ONCE, "emptydirfs.limit")
    total = demand.pod_limits(pod, only=_STORAGE).get(demand.STORAGE)
    if total is not None and (ephemeral_storage(usage)[0] > total or not is_measured(usage)):
        text = format_exact(total)
        message = f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
        return Eviction(pod, REASON, message, AT_ONCE, "ephemeralpodfs.limit")
    limits = _container_limits(pod)
    for one in usage.containers:
        bound = limits.get(one.name)
        if bound is not None and (_written(one, image_fs) > bound or (one.logs is not None and one.logs.unread)):
            message = f'Container {one.name} exceeded its local ephemeral storage limit "{format_exact(bound)}". '
            return Eviction(pod, REASON, message, AT_ONCE, "ephemeralcontainerfs.limit")
    return None


def _written(one: ContainerStats, image_fs: bool) -> int:
    logs = one.logs.used if one.logs is not None else 0
    return logs + (one.layer.used if one.layer is not None and not image_fs else 0)


def _volume_limits(pod: Pod) -> dict[str, tuple[Decimal, str]]:
    """emptyDir volume -> (limit in bytes, the limit as the pod has it)."""
    found = {}
    for volume in pod.spec.get("volumes") or []:
        text = (volume.get("emptyDir") or {}).get("sizeLimit")
        if text is not None and parse(text) > 0:
            found[volume["name"]] = (parse(text), str(text))
    return found


def _container_limits(pod: Pod) -> dict[str, Decimal]:
    found = {}
    for kind, container in pod.containers(Kind.MAIN, Kind.INIT):
        limit = demand.container_amounts(container, "limits", _STORAGE).get(demand.STORAGE)
        if limit and (kind is Kind.MAIN or is_sidecar(kind, container)):
            found[container["name"]] = limit
    return found
