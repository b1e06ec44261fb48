"""The static memory manager: containers of Guaranteed pods have their memory on as few NUMA nodes as will do.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its words. A node gives memory alone or in one group of
nodes, never both: what is on one node could else be pushed off it by what is on two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from agent.model.cpus import NumaNode
from agent.model.memory_blocks import Block, MemoryState, MemoryTable, NumaState
from agent.model.pods import Json, Kind, Pod
from agent.plan import demand
from agent.plan.exclusive.cpus import Owner, has_pod_level
from agent.plan.exclusive.hints import Hint, Hints, Mask, mask_of, masks, nodes_of, width
from nodelib.errors import Invalid
from nodelib.quantity import format_bytes

Wanted = Mapping[str, int]
"""Bytes by kind."""
Again = Mapping[tuple[tuple[int, ...], str], int]
"""What init containers that end leave to later containers: bytes by nodes and kind."""


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """`system`: bytes kept back, by node and kind."""

    nodes: tuple[NumaNode, ...]
    system: Mapping[int, Mapping[str, int]]


def memory_policy(
    nodes: Iterable[NumaNode], told: Iterable[tuple[int, Mapping[str, int]]], reservation: Mapping[str, Decimal]
) -> MemoryPolicy:
    """`told`: reservedMemory; `reservation`: what the node keeps back in all. Raises Invalid: the two must agree."""
    known = tuple(nodes)
    system: dict[int, dict[str, int]] = {node.id: {} for node in known}
    total: dict[str, int] = {}
    for number, limits in told:
        if number not in system:
            text = f"references a NUMA node {number} that does not exist on this machine"
            raise Invalid(f"the reserved memory configuration {text}")
        for kind, size in limits.items():
            system[number][kind] = size
            total[kind] = total.get(kind, 0) + size
    kept = {kind: int(amount) for kind, amount in reservation.items() if _is_memory(kind)}
    for kind in sorted(total.keys() | kept.keys()):
        if total.get(kind, 0) != kept.get(kind, 0):
            amounts = [format_bytes(found.get(kind, 0)) for found in (total, kept)]
            raise Invalid(
                f'the total amount "{amounts[0]}" of type "{kind}" is not equal to the value "{amounts[1]}" determined '
                "by Node Allocatable feature",
                action="Make the sum of reservedMemory what kubeReserved, systemReserved and evictionHard come to.",
            )
    if not total.get(demand.MEMORY):
        raise Invalid("you should specify the system reserved memory", action="Set reservedMemory for a NUMA node.")
    return MemoryPolicy(known, system)


def first_state(policy: MemoryPolicy) -> MemoryState:
    """Nothing is given."""
    return MemoryState({node.id: _fresh(node, policy.system.get(node.id, {})) for node in policy.nodes})


def checked(policy: MemoryPolicy, state: MemoryState) -> MemoryState:
    """A state as it was kept, or the first one. Raises Invalid when it cannot be worked with."""
    expected = first_state(policy)
    if not state.nodes:
        if state.held:
            raise Invalid("machine state can not be empty when it has memory assignments")
        return expected
    nodes = dict(expected.nodes)
    for (uid, container), blocks in sorted(state.held.items()):
        for block in blocks:
            if any(node not in nodes for node in block.nodes):
                text = f"(pod: {uid}, container: {container}) the memory assignment uses the NUMA that does not exist"
                raise Invalid(text)
            if any(block.kind not in nodes[node].tables for node in block.nodes):
                text = "the memory assignment uses memory resource that does not exist"
                raise Invalid(f"(pod: {uid}, container: {container}) {text}")
            _give(nodes, block.nodes, block.kind, block.size)
    if not _alike(state.nodes, nodes):
        raise Invalid("the expected machine state is different from the real one")
    return state


def wanted(pod: Pod, container: Json) -> dict[str, int]:
    """What the container is to have on nodes of its own choice; {}: it takes what comes."""
    if demand.qos_class(pod) is not demand.Qos.GUARANTEED or has_pod_level(pod):
        return {}
    listed = demand.container_amounts(container, "requests")
    return {kind: int(amount) for kind, amount in sorted(listed.items()) if _is_memory(kind)}


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
    return _regenerated(has, wants) if has is not None else _by_kind(_found(state, wants, again), wants)


def pod_hints(state: MemoryState, pod: Pod) -> Hints:
    """Where the memory of all its containers could be."""
    wants = wanted_by_pod(pod)
    if not wants:
        return {}
    for _, container in pod.containers(Kind.INIT, Kind.MAIN):
        has = state.held.get((pod.uid, container["name"]))
        if has is not None:
            return _regenerated(has, wants)
    return _by_kind(_found(state, wants, {}), wants)


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
        _give(nodes, on, block.kind, max(0, block.size - again.get((on, block.kind), 0)))
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
        _take_back(nodes, block)
    return MemoryState(nodes, {one: has for one, has in state.held.items() if one != owner})


def allocatable_blocks(state: MemoryState) -> tuple[Block, ...]:
    """What containers can have, by node and kind."""
    return tuple(
        Block((number,), kind, table.allocatable)
        for number, node in sorted(state.nodes.items())
        for kind, table in sorted(node.tables.items())
        if table.allocatable
    )


def _is_memory(kind: str) -> bool:
    return kind == demand.MEMORY or kind.startswith(demand.HUGEPAGES_PREFIX)


def _fresh(node: NumaNode, system: Mapping[str, int]) -> NumaState:
    tables = {}
    for size, total in node.hugepages.items():
        kind = f"{demand.HUGEPAGES_PREFIX}{format_bytes(size)}"
        tables[kind] = _table(total, system.get(kind, 0), 0)
    tables[demand.MEMORY] = _table(node.memory, system.get(demand.MEMORY, 0), sum(node.hugepages.values()))
    return NumaState(0, tables, (node.id,))


def _table(total: int, system: int, elsewhere: int) -> MemoryTable:
    left = max(0, total - system - elsewhere)
    return MemoryTable(total, system, left, 0, left)


def _found(state: MemoryState, wants: Wanted, again: Again) -> tuple[Hint, ...]:
    """Every set of nodes that has all of it; those are preferred that are as few as would ever do."""
    fewest, found = len(state.nodes), []
    for mask in masks(state.nodes):
        on = nodes_of(mask)
        if any(_sum(state, on, kind, "allocatable") < size for kind, size in wants.items()):
            continue
        fewest = min(fewest, len(on))
        if len(on) == 1 and len(state.nodes[on[0]].cells) > 1:
            continue
        if len(on) > 1 and _violates(state, on):
            continue
        if all(_sum(state, on, kind, "free") + again.get((on, kind), 0) >= size for kind, size in wants.items()):
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == fewest) for mask in found)


def _by_kind(found: tuple[Hint, ...], wants: Wanted) -> Hints:
    # None at all is no preference, as upstream has it: allocate() refuses then, and says why.
    return dict.fromkeys(wants, found) if found else {}


def _regenerated(has: tuple[Block, ...], wants: Wanted) -> Hints:
    if {block.kind: block.size for block in has} != dict(wants):
        return {}
    return {block.kind: (Hint(mask_of(block.nodes), True),) for block in has}


def _chosen(state: MemoryState, wants: Wanted, hint: Hint, again: Again) -> Mask:
    affinity, preferred = hint.affinity, hint.preferred
    if affinity is None:
        every = _found(state, wants, again)
        if not every:
            raise Invalid("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
        affinity, preferred = _picked(every, preferred, "failed to find the default preferred hint")
    if any(_sum(state, nodes_of(affinity), kind, "free") < size for kind, size in wants.items()):
        more = tuple(one for one in _found(state, wants, again) if one.affinity and not affinity & ~one.affinity)
        if not more:
            raise Invalid("failed to find NUMA nodes to extend the current topology hint")
        affinity, preferred = _picked(more, preferred, "failed to find the extended preferred hint")
    if len(nodes_of(affinity)) > 1 and _violates(state, nodes_of(affinity)):
        raise Invalid("preferred hint violates NUMA node allocation")
    return affinity


def _picked(found: tuple[Hint, ...], must_be_preferred: bool, problem: str) -> tuple[Mask, bool]:
    best = min(found, key=lambda one: (not one.preferred, width(one.affinity or 0)))
    if must_be_preferred and not best.preferred:
        raise Invalid(problem)
    return best.affinity or 0, best.preferred


def _violates(state: MemoryState, on: tuple[int, ...]) -> bool:
    """One of several nodes gives memory alone already, or together with others."""
    return any(state.nodes[node].assignments > 0 and set(state.nodes[node].cells) != set(on) for node in on)


def _sum(state: MemoryState, on: Iterable[int], kind: str, which: str) -> int:
    tables = [state.nodes[node].tables.get(kind) for node in on if node in state.nodes]
    return sum(getattr(table, which) for table in tables if table is not None)


def _give(nodes: dict[int, NumaState], on: tuple[int, ...], kind: str, size: int) -> None:
    for number in on:
        node = nodes[number]
        table = node.tables.get(kind)
        part = min(size, table.free) if table is not None else 0
        size -= part
        tables = node.tables
        if table is not None and part:
            tables = {**tables, kind: replace(table, reserved=table.reserved + part, free=table.free - part)}
        nodes[number] = NumaState(node.assignments + 1, tables, on)


def _take_back(nodes: dict[int, NumaState], block: Block) -> None:
    size = block.size
    for number in block.nodes:
        node = nodes[number]
        table = node.tables.get(block.kind)
        part = min(size, table.reserved) if table is not None else 0
        size -= part
        tables = node.tables
        if table is not None and part:
            tables = {**tables, block.kind: replace(table, reserved=table.reserved - part, free=table.free + part)}
        left = node.assignments - 1
        nodes[number] = NumaState(left, tables, node.cells if left else (number,))


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


def _alike(one: Mapping[int, NumaState], other: Mapping[int, NumaState]) -> bool:
    """The same machine with as much given. Which node of a group gave it depends on the order."""
    if one.keys() != other.keys():
        return False
    for number, node in one.items():
        also = other[number]
        if (node.assignments, set(node.cells)) != (also.assignments, set(also.cells)):
            return False
        if node.tables.keys() != also.tables.keys():
            return False
        for kind, table in node.tables.items():
            fixed = [(each.total, each.system, each.allocatable) for each in (table, also.tables[kind])]
            if fixed[0] != fixed[1] or _given(one, node, kind) != _given(other, also, kind):
                return False
    return True


def _given(nodes: Mapping[int, NumaState], node: NumaState, kind: str) -> tuple[int, int]:
    tables = [table for cell in node.cells if cell in nodes and (table := nodes[cell].tables.get(kind)) is not None]
    return sum(table.reserved for table in tables), sum(table.free for table in tables)
