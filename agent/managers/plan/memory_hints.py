"""How much NUMA memory a container should get, and the topology hints for it.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.restart import is_sidecar
from agent.managers.model.memory_blocks import Block, MemoryState
from agent.managers.plan.cpus import Owner, has_pod_level
from agent.managers.plan.hints import Hint, Hints, mask_of, masks, nodes_of, sum_on
from agent.managers.plan.memory_policy import is_memory
from nodelib.json_values import Json

Requested = Mapping[str, int]
"""Bytes by kind."""
Reusable = Mapping[tuple[tuple[int, ...], str], int]
"""Memory of ended init containers that later containers can reuse: bytes by nodes and kind."""


def requested(pod: Pod, container: Json) -> dict[str, int]:
    """Bytes by kind that are assigned to the container; {}: none, it uses any node."""
    if demand.qos_class(pod) is not demand.Qos.GUARANTEED or has_pod_level(pod):
        return {}
    listed = demand.container_amounts(container, "requests")
    return {kind: int(amount) for kind, amount in sorted(listed.items()) if is_memory(kind)}


def pod_requested(pod: Pod) -> dict[str, int]:
    """The most of each kind that the pod needs at the same time.

    Upstream leaves out kinds that only init containers request, and may then find no node for them.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        for name, size in requested(pod, container).items():
            now = sidecars.get(name, 0) + size
            if kind is Kind.MAIN or is_sidecar(kind, container):
                sidecars[name] = now
            peak[name] = max(peak.get(name, 0), now)
    return peak


def hints(state: MemoryState, owner: Owner, requests: Requested, reusable: Reusable) -> Hints:
    """Topology hints for the memory of one container."""
    if not requests:
        return {}
    has = state.assignments.get(owner)
    return (
        _regenerated(has, requests)
        if has is not None
        else _by_kind(calculate_hints(state, requests, reusable), requests)
    )


def pod_hints(state: MemoryState, pod: Pod) -> Hints:
    """Topology hints for the memory of all containers of the pod together."""
    requests = pod_requested(pod)
    if not requests:
        return {}
    for _, container in pod.containers(Kind.INIT, Kind.MAIN):
        has = state.assignments.get((pod.uid, container["name"]))
        if has is not None:
            return _regenerated(has, requests)
    return _by_kind(calculate_hints(state, requests, {}), requests)


def calculate_hints(state: MemoryState, requests: Requested, reusable: Reusable) -> tuple[Hint, ...]:
    """Every set of NUMA nodes with enough memory. The smallest sets that could ever be enough are preferred."""
    smallest, found = len(state.nodes), []
    ever = {kind: on_each(state, kind, "allocatable") for kind in requests}
    now = {kind: on_each(state, kind, "free") for kind in requests}
    for mask in masks(state.nodes):
        on = nodes_of(mask)
        if any(sum_on(mask, ever[kind]) < size for kind, size in requests.items()):
            continue
        smallest = min(smallest, len(on))
        if len(on) == 1 and len(state.nodes[on[0]].cells) > 1:
            continue
        if len(on) > 1 and violates(state, on):
            continue
        if all(sum_on(mask, now[kind]) + reusable.get((on, kind), 0) >= size for kind, size in requests.items()):
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)


def on_each(state: MemoryState, kind: str, which: str) -> dict[int, int]:
    """Bytes of this kind by NUMA node; `which` names a field of MemoryTable."""
    return {number: getattr(node.tables[kind], which) for number, node in state.nodes.items() if kind in node.tables}


def violates(state: MemoryState, on: tuple[int, ...]) -> bool:
    """One of these nodes serves alone already, or in a group with other nodes."""
    return any(state.nodes[node].assignments > 0 and set(state.nodes[node].cells) != set(on) for node in on)


def _by_kind(found: tuple[Hint, ...], requests: Requested) -> Hints:
    # As upstream, no hints at all mean no preference. allocate() refuses the container then and says why.
    return dict.fromkeys(requests, found) if found else {}


def _regenerated(has: tuple[Block, ...], requests: Requested) -> Hints:
    if {block.kind: block.size for block in has} != dict(requests):
        return {}
    return {block.kind: (Hint(mask_of(block.nodes), True),) for block in has}
