"""The resources that are in force after a container was started or updated."""

from __future__ import annotations

from dataclasses import replace

from agent.common.model.pods import Pod
from agent.resources.model import CPU, MEMORY, Allocation, Sizes
from nodelib.json_values import Json
from nodelib.quantity import format_bytes, format_milli, milli, value


def sizes(resources: Json | None, whole: Json | None) -> Sizes:
    """The sizes of a container. Where it has no limit of its own, the pod's limit counts."""
    requests, limits = (resources or {}).get("requests") or {}, (resources or {}).get("limits") or {}
    of_pod = (whole or {}).get("limits") or {}
    return Sizes(
        cpu_request=milli(requests.get(CPU, 0)),
        cpu_limit=milli(limits.get(CPU, 0)) or milli(of_pod.get(CPU, 0)),
        memory_request=value(requests.get(MEMORY, 0)),
        memory_limit=value(limits.get(MEMORY, 0)) or value(of_pod.get(MEMORY, 0)),
    )


def resources_of(given: Sizes, stated: Json | None) -> Json:
    """ResourceRequirements with these sizes; all other resources of `stated` stay (huge pages, extended resources)."""
    found: Json = {}
    for side, cpu, memory in (
        ("requests", given.cpu_request, given.memory_request),
        ("limits", given.cpu_limit, given.memory_limit),
    ):
        before = (stated or {}).get(side) or {}
        kept = {name: text for name, text in before.items() if name not in (CPU, MEMORY)}
        if cpu or CPU in before:
            kept[CPU] = format_milli(cpu)
        if memory or MEMORY in before:
            kept[MEMORY] = format_bytes(memory)
        if kept:
            found[side] = kept
    return found


def after_start(actuated: Allocation, pod: Pod, container: Json) -> Allocation:
    """The actuated resources after a container of `pod` (as allocated) was created."""
    given = sizes(container.get("resources"), pod.spec.get("resources"))
    return after_update(actuated, container["name"], given, container.get("resources"))


def after_update(actuated: Allocation, name: str, given: Sizes, stated: Json | None) -> Allocation:
    """The actuated resources after a running container got these sizes."""
    return replace(actuated, containers={**actuated.containers, name: resources_of(given, stated)})
