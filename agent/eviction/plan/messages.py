"""The message of an evicted pod's status and event, in upstream's words (helpers.go evictionMessage)."""

from __future__ import annotations

from collections.abc import Iterable

from agent.common.model.eviction import REASON, Eviction
from agent.common.model.pods import Kind
from agent.common.plan import demand
from agent.common.plan.restart import grace_seconds
from agent.eviction.model import Candidate, EvictionPolicy, Observations, Threshold
from agent.eviction.plan.signals import INODES, MEMORY, PIDS, RESOURCES, STORAGE
from agent.stats.model import ContainerStats
from nodelib.quantity import format_bytes, format_exact

AT_ONCE = 1  # seconds; upstream's immediateEvictionGracePeriodSeconds


def eviction(
    one: Candidate, target: Threshold, due: Iterable[Threshold], seen: Observations, policy: EvictionPolicy
) -> Eviction:
    """The eviction of this pod for a threshold that is met."""
    resource = RESOURCES[target.signal]
    text, annotations = _message(one, resource, due, seen)
    grace = AT_ONCE if target.hard else min(policy.max_grace, grace_seconds(one.pod))
    return Eviction(one.pod, REASON, text, grace, target.signal, disrupted=True, annotations=annotations)


def shown(amount: int, resource: str) -> str:
    """Bytes as Kubernetes writes them, pieces as a plain number."""
    return str(amount) if resource in (INODES, PIDS) else format_bytes(amount)


def _message(one: Candidate, resource: str, due: Iterable[Threshold], seen: Observations) -> tuple[str, dict[str, str]]:
    text = f"The node was low on resource: {resource}. "
    notes: dict[str, str] = {}
    met = next((known for known in due if RESOURCES[known.signal] == resource and known.signal in seen), None)
    if met is not None:
        observed = seen[met.signal]
        least = shown(met.least.of(observed.capacity), resource)
        text += f"Threshold quantity: {least}, available: {shown(observed.available, resource)}. "
    if one.usage is None:
        return text, notes
    asked = demand.pod_level(one.pod, "requests").get(MEMORY)
    if resource == MEMORY and asked is not None:
        used = format_bytes(one.usage.sample.memory.working_set)
        text += f"Pod {one.pod.name} was using {used}, request is {format_exact(asked)}, "
        text += f"has larger consumption of {resource}. "
        notes |= {"offending_pod": one.pod.name, "offending_pod_usage": used}
    over = _over(one, resource)
    for name, used, request in over:
        text += f"Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
    notes["offending_containers"] = ",".join(name for name, _, _ in over)
    notes["offending_containers_usage"] = ",".join(used for _, used, _ in over)
    notes["starved_resource"] = resource
    return text, notes


def _over(one: Candidate, resource: str) -> list[tuple[str, str, str]]:
    """(name, use, request) of the containers that use more than they request."""
    specs = {spec["name"]: spec for _, spec in one.pod.containers(Kind.MAIN, Kind.INIT)}
    found = []
    for usage in one.usage.containers if one.usage is not None else ():
        used = _container_use(usage, resource)
        if usage.name not in specs or used is None:
            continue
        request = demand.container_amounts(specs[usage.name], "requests").get(resource, demand.ZERO)
        if used > request:
            found.append((usage.name, format_bytes(used), format_exact(request)))
    return found


def _container_use(usage: ContainerStats, resource: str) -> int | None:
    if resource == MEMORY:
        return usage.sample.memory.working_set
    if resource == STORAGE and usage.layer is not None and usage.logs is not None:
        return usage.layer.used + usage.logs.used
    return None
