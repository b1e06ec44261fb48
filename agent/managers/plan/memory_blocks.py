"""The static policy of the memory manager: memory of Guaranteed pods on as few NUMA nodes as possible.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its messages. A NUMA node serves either alone or in one
group of nodes, never both: memory that spans two nodes could otherwise push single-node memory off its node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar
from agent.managers.model.memory_blocks import Block, MemoryState
from agent.managers.plan.cpus import Owner
from agent.managers.plan.hints import Hint, Mask, nodes_of, sum_on, width
from agent.managers.plan.memory_hints import Requested, Reusable, calculate_hints, on_each, requested, violates
from agent.managers.plan.memory_policy import free_block, reserve
from nodelib.errors import Invalid
from nodelib.json_values import Json


def allocate(
    state: MemoryState, pod: Pod, container: Json, hint: Hint, reusable: Reusable
) -> tuple[MemoryState, tuple[Block, ...]]:
    """The new state, and the blocks of the container. Blocks that it has already stay. Raises Invalid."""
    owner, requests = (pod.uid, container["name"]), requested(pod, container)
    if not requests:
        return state, ()
    if owner in state.assignments:
        return state, state.assignments[owner]
    on = nodes_of(_affinity(state, requests, hint, reusable))
    nodes = dict(state.nodes)
    blocks = tuple(Block(on, kind, size) for kind, size in requests.items())
    for block in blocks:
        reserve(nodes, on, block.kind, max(0, block.size - reusable.get((on, block.kind), 0)))
    assignments = {**state.assignments, owner: blocks}
    for block in blocks:
        _update_init_containers(assignments, pod, container["name"], block)
    return MemoryState(nodes, assignments), blocks


def reusable_after(reusable: Reusable, kind: Kind, container: Json, blocks: Iterable[Block]) -> Reusable:
    """Memory that later containers of the pod can get as well, after this one got `blocks`."""
    left = dict(reusable)
    for block in blocks:
        key = block.nodes, block.kind
        if kind is Kind.INIT and not is_sidecar(kind, container):
            left[key] = max(left.get(key, 0), block.size)
        else:
            left[key] = max(0, left.get(key, 0) - block.size)
    return left


def release(state: MemoryState, owner: Owner) -> MemoryState:
    """The container is gone."""
    blocks = state.assignments.get(owner)
    if blocks is None:
        return state
    nodes = dict(state.nodes)
    for block in blocks:
        free_block(nodes, block)
    return MemoryState(nodes, {one: has for one, has in state.assignments.items() if one != owner})


def allocatable_blocks(state: MemoryState) -> tuple[Block, ...]:
    """All memory that can be assigned, by NUMA node and kind."""
    return tuple(
        Block((number,), kind, table.allocatable)
        for number, node in sorted(state.nodes.items())
        for kind, table in sorted(node.tables.items())
        if table.allocatable
    )


def _affinity(state: MemoryState, requests: Requested, hint: Hint, reusable: Reusable) -> Mask:
    affinity, preferred = hint.affinity, hint.preferred
    if affinity is None:
        every = calculate_hints(state, requests, reusable)
        if not every:
            raise Invalid("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
        affinity, preferred = _best_hint(every, preferred, "failed to find the default preferred hint")
    if any(sum_on(affinity, on_each(state, kind, "free")) < size for kind, size in requests.items()):
        more = tuple(
            one for one in calculate_hints(state, requests, reusable) if one.affinity and not affinity & ~one.affinity
        )
        if not more:
            raise Invalid("failed to find NUMA nodes to extend the current topology hint")
        affinity, preferred = _best_hint(more, preferred, "failed to find the extended preferred hint")
    if len(nodes_of(affinity)) > 1 and violates(state, nodes_of(affinity)):
        raise Invalid("preferred hint violates NUMA node allocation")
    return affinity


def _best_hint(found: tuple[Hint, ...], must_be_preferred: bool, problem: str) -> tuple[Mask, bool]:
    best = min(found, key=lambda one: (not one.preferred, width(one.affinity or 0)))
    if must_be_preferred and not best.preferred:
        raise Invalid(problem)
    return best.affinity or 0, best.preferred


def _update_init_containers(assignments: dict[Owner, tuple[Block, ...]], pod: Pod, name: str, block: Block) -> None:
    """Take memory that the container reuses off the init containers before it, so that it is counted once."""
    size = block.size
    for kind, container in pod.containers(Kind.INIT):
        if container["name"] == name or not size:
            return
        owner = pod.uid, container["name"]
        has = assignments.get(owner, ())
        # Most of those before it have nothing left: they are asked for each container of the pod.
        if not any(one.size and (one.nodes, one.kind) == (block.nodes, block.kind) for one in has):
            continue
        if is_sidecar(kind, container):
            continue
        kept = []
        for one in has:
            part = min(size, one.size) if (one.nodes, one.kind) == (block.nodes, block.kind) else 0
            size -= part
            kept.append(replace(one, size=one.size - part))
        assignments[owner] = tuple(kept)
