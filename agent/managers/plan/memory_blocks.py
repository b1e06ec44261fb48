"""The static memory manager: containers of Guaranteed pods have their memory on as few NUMA nodes as will do.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its words. A node gives memory alone or in one group of
nodes, never both: what is on one node could else be pushed off it by what is on two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.common.model.pods import Json, Kind, Pod
from agent.common.plan import demand
from agent.managers.model.memory_blocks import Block, MemoryState
from agent.managers.plan.cpus import Owner
from agent.managers.plan.hints import Hint, Mask, nodes_of, sum_on, width
from agent.managers.plan.memory_assignments import give, take_back
from agent.managers.plan.memory_hints import Again, Wanted, on_each, places, violates, wanted
from nodelib.errors import Invalid


def allocate(
    state: MemoryState, pod: Pod, container: Json, hint: Hint, again: Again
) -> tuple[MemoryState, tuple[Block, ...]]:
    """The state with the container's memory, and that. What it has already it keeps. Raises Invalid."""
    owner, wants = (pod.uid, container["name"]), wanted(pod, container)
    if not wants:
        return state, ()
    if owner in state.held:
        return state, state.held[owner]
    on = nodes_of(_chosen(state, wants, hint, again))
    nodes = dict(state.nodes)
    blocks = tuple(Block(on, kind, size) for kind, size in wants.items())
    for block in blocks:
        give(nodes, on, block.kind, max(0, block.size - again.get((on, block.kind), 0)))
    held = {**state.held, owner: blocks}
    for block in blocks:
        _charge_less(held, pod, container["name"], block)
    return MemoryState(nodes, held), blocks


def again_after(again: Again, kind: Kind, container: Json, blocks: Iterable[Block]) -> Again:
    """What later containers of the pod may have too, after this one got `blocks`."""
    left = dict(again)
    for block in blocks:
        key = block.nodes, block.kind
        if kind is Kind.INIT and not demand.is_sidecar(container):
            left[key] = max(left.get(key, 0), block.size)
        else:
            left[key] = max(0, left.get(key, 0) - block.size)
    return left


def release(state: MemoryState, owner: Owner) -> MemoryState:
    """The container is gone."""
    blocks = state.held.get(owner)
    if blocks is None:
        return state
    nodes = dict(state.nodes)
    for block in blocks:
        take_back(nodes, block)
    return MemoryState(nodes, {one: has for one, has in state.held.items() if one != owner})


def allocatable_blocks(state: MemoryState) -> tuple[Block, ...]:
    """What containers can have, by node and kind."""
    return tuple(
        Block((number,), kind, table.allocatable)
        for number, node in sorted(state.nodes.items())
        for kind, table in sorted(node.tables.items())
        if table.allocatable
    )


def _chosen(state: MemoryState, wants: Wanted, hint: Hint, again: Again) -> Mask:
    affinity, preferred = hint.affinity, hint.preferred
    if affinity is None:
        every = places(state, wants, again)
        if not every:
            raise Invalid("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
        affinity, preferred = _picked(every, preferred, "failed to find the default preferred hint")
    if any(sum_on(affinity, on_each(state, kind, "free")) < size for kind, size in wants.items()):
        more = tuple(one for one in places(state, wants, again) if one.affinity and not affinity & ~one.affinity)
        if not more:
            raise Invalid("failed to find NUMA nodes to extend the current topology hint")
        affinity, preferred = _picked(more, preferred, "failed to find the extended preferred hint")
    if len(nodes_of(affinity)) > 1 and violates(state, nodes_of(affinity)):
        raise Invalid("preferred hint violates NUMA node allocation")
    return affinity


def _picked(found: tuple[Hint, ...], must_be_preferred: bool, problem: str) -> tuple[Mask, bool]:
    best = min(found, key=lambda one: (not one.preferred, width(one.affinity or 0)))
    if must_be_preferred and not best.preferred:
        raise Invalid(problem)
    return best.affinity or 0, best.preferred


def _charge_less(held: dict[Owner, tuple[Block, ...]], pod: Pod, name: str, block: Block) -> None:
    """What a container has from init containers before it is no longer theirs: all together is what the pod has."""
    size = block.size
    for _, container in pod.containers(Kind.INIT):
        if container["name"] == name:
            return
        if demand.is_sidecar(container):
            continue
        owner, kept = (pod.uid, container["name"]), []
        for one in held.get(owner, ()):
            part = min(size, one.size) if (one.nodes, one.kind) == (block.nodes, block.kind) else 0
            size -= part
            kept.append(replace(one, size=one.size - part))
        if kept:
            held[owner] = tuple(kept)
