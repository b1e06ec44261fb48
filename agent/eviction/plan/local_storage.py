"""Limits of ephemeral storage: of an emptyDir, of a pod, of a container (managerImpl.localStorageEviction).

The kernel enforces none of them (except for a tmpfs): a pod that writes more than its limit is evicted.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

from agent.common.model.eviction import REASON, Eviction
from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.restart import is_sidecar
from agent.eviction.model import StorageLimits
from agent.eviction.plan.messages import AT_ONCE
from agent.stats.model import ContainerStats, PodStats
from agent.stats.plan.summary import ephemeral_storage, is_measured
from nodelib.errors import Invalid
from nodelib.quantity import format_exact, parse

_STORAGE = (demand.STORAGE,)


def limits_of(pod: Pod) -> StorageLimits:
    """The pod's limits, which no resize changes. A pod may have tens of thousands: read them once.

    An amount that is out of any range, which an API server stores, is no limit: a pod must not end a round.
    """
    total = None
    with suppress(Invalid):
        total = demand.pod_limits(pod, only=_STORAGE).get(demand.STORAGE)
    return StorageLimits(_volume_limits(pod), total, _container_limits(pod))


def size(pod: Pod) -> int:
    """How many entries of the pod its limits are read from, and compared with."""
    listed = pod.spec.get("volumes") or []
    return len(listed) + sum(1 for _ in pod.containers())


def violation(pod: Pod, limits: StorageLimits, usage: PodStats, *, image_fs: bool) -> Eviction | None:
    """The pod's eviction if it uses more than it may. `image_fs`: layers are on another disk than logs.

    What could not be measured counts as more than any limit.
    """
    for volume in usage.volumes:
        limit, used = limits.volumes.get(volume.name), volume.usage
        if limit is not None and (used.used > limit or used.unread):
            text = _size_limit(pod, volume.name)
            message = f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{text}". '
            return Eviction(pod, REASON, message, AT_ONCE, "emptydirfs.limit")
    total = limits.total
    if total is not None and (ephemeral_storage(usage)[0] > total or not is_measured(usage)):
        text = format_exact(total)
        message = f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
        return Eviction(pod, REASON, message, AT_ONCE, "ephemeralpodfs.limit")
    for one in usage.containers:
        bound = limits.containers.get(one.name)
        if bound is not None and (_written(one, image_fs) > bound or (one.logs is not None and one.logs.unread)):
            message = f'Container {one.name} exceeded its local ephemeral storage limit "{format_exact(bound)}". '
            return Eviction(pod, REASON, message, AT_ONCE, "ephemeralcontainerfs.limit")
    return None


def _written(one: ContainerStats, image_fs: bool) -> int:
    logs = one.logs.used if one.logs is not None else 0
    return logs + (one.layer.used if one.layer is not None and not image_fs else 0)


def _volume_limits(pod: Pod) -> dict[str, Decimal]:
    found = {}
    for volume in pod.spec.get("volumes") or []:
        text = (volume.get("emptyDir") or {}).get("sizeLimit")
        with suppress(Invalid):
            if text is not None and (limit := parse(text)) > 0:
                found[volume["name"]] = limit
    return found


def _size_limit(pod: Pod, name: str) -> str:
    """The limit of an emptyDir as the pod has it."""
    named = (volume for volume in pod.spec.get("volumes") or [] if volume["name"] == name)
    return str(next(named)["emptyDir"]["sizeLimit"])


def _container_limits(pod: Pod) -> dict[str, Decimal]:
    found = {}
    for kind, container in pod.containers(Kind.MAIN, Kind.INIT):
        limit = None
        with suppress(Invalid):
            limit = demand.container_amounts(container, "limits", _STORAGE).get(demand.STORAGE)
        if limit and (kind is Kind.MAIN or is_sidecar(kind, container)):
            found[container["name"]] = limit
    return found
