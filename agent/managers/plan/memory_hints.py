"""What memory a container is to have on nodes of its own, and on which nodes that could be.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its words.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.model.pods import Json, Kind, Pod
from agent.common.plan import demand
from agent.managers.model.memory_blocks import Block, MemoryState
from agent.managers.plan.cpus import Owner, has_pod_level
from agent.managers.plan.hints import Hint, Hints, mask_of, masks, nodes_of, sum_on
from agent.managers.plan.memory_policy import is_memory

Wanted = Mapping[str, int]
"""Bytes by kind."""
Again = Mapping[tuple[tuple[int, ...], str], int]
"""What init containers that end leave to later containers: bytes by nodes and kind."""


def wanted(pod: Pod, container: Json) -> dict[str, int]:
    """What the container is to have on nodes of its own choice; {}: it takes what comes."""
    if demand.qos_class(pod) is not demand.Qos.GUARANTEED or has_pod_level(pod):
        return {}
    listed = demand.container_amounts(container, "requests")
    return {kind: int(amount) for kind, amount in sorted(listed.items()) if is_memory(kind)}


def wanted_by_pod(pod: Pod) -> dict[str, int]:
    """The most of each at one time. Upstream leaves out what only init containers ask for: it may find no place."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for kind, container in pod.containers(Kind.INIT, Kind.MAIN):
        for name, size in wanted(pod, container).items():
            now = sidecars.get(name, 0) + size
            if kind is Kind.MAIN or demand.is_sidecar(container):
                sidecars[name] = now
            peak[name] = max(peak.get(name, 0), now)
    return peak


def hints(state: MemoryState, owner: Owner, wants: Wanted, again: Again) -> Hints:
    """Where a container's memory could be."""
    if not wants:
        return {}
    has = state.held.get(owner)
    return _regenerated(has, wants) if has is not None else _by_kind(places(state, wants, again), wants)


def pod_hints(state: MemoryState, pod: Pod) -> Hints:
    """Where the memory of all its containers could be."""
    wants = wanted_by_pod(pod)
    if not wants:
        return {}
    for _, container in pod.containers(Kind.INIT, Kind.MAIN):
        has = state.held.get((pod.uid, container["name"]))
        if has is not None:
            return _regenerated(has, wants)
    return _by_kind(places(state, wants, {}), wants)


def places(state: MemoryState, wants: Wanted, again: Again) -> tuple[Hint, ...]:
    """Every set of nodes that has all of it; those are preferred that are as few as would ever do."""
    fewest, found = len(state.nodes), []
    ever = {kind: on_each(state, kind, "allocatable") for kind in wants}
    now = {kind: on_each(state, kind, "free") for kind in wants}
    for mask in masks(state.nodes):
        on = nodes_of(mask)
        if any(sum_on(mask, ever[kind]) < size for kind, size in wants.items()):
            continue
        fewest = min(fewest, len(on))
        if len(on) == 1 and len(state.nodes[on[0]].cells) > 1:
            continue
        if len(on) > 1 and violates(state, on):
            continue
        if all(sum_on(mask, now[kind]) + again.get((on, kind), 0) >= size for kind, size in wants.items()):
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == fewest) for mask in found)


def on_each(state: MemoryState, kind: str, which: str) -> dict[int, int]:
    """Bytes of this kind that each node has: `which` is a field of MemoryTable."""
    return {number: getattr(node.tables[kind], which) for number, node in state.nodes.items() if kind in node.tables}


def violates(state: MemoryState, on: tuple[int, ...]) -> bool:
    """One of several nodes gives memory alone already, or together with others."""
    return any(state.nodes[node].assignments > 0 and set(state.nodes[node].cells) != set(on) for node in on)


def _by_kind(found: tuple[Hint, ...], wants: Wanted) -> Hints:
    # None at all is no preference, as upstream has it: allocate() refuses then, and says why.
    return dict.fromkeys(wants, found) if found else {}


def _regenerated(has: tuple[Block, ...], wants: Wanted) -> Hints:
    if {block.kind: block.size for block in has} != dict(wants):
        return {}
    return {block.kind: (Hint(mask_of(block.nodes), True),) for block in has}
