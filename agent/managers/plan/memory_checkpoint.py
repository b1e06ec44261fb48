"""The text of memory_manager_state, as upstream's kubelet writes and reads it.

Follows pkg/kubelet/cm/memorymanager/state/checkpoint.go: version 3 in `data`, and version 1 for
kubelets before 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.managers.model.memory_blocks import Block, MemoryState, MemoryTable, NumaState
from agent.managers.plan.checkpoint import decoded, go_map
from agent.managers.plan.memory_policy import MemoryPolicy, checked
from agent.resources.plan.checkpoint import checksum
from nodelib.fnv import fnv1a
from nodelib.json_values import Json, compact

MEMORY_FILE = "memory_manager_state"
STATIC, NONE = "Static", "None"


def encode_memory(state: MemoryState, policy: str = STATIC) -> str:
    """The whole file."""
    shown: Json = {
        "policyName": policy,
        "machineState": {str(number): _node(state.nodes[number]) for number in _named(state.nodes)},
    }
    entries: dict[str, dict[str, list[Json]]] = {}
    for (uid, container), blocks in sorted(state.assignments.items()):
        listed = [{"numaAffinity": list(one.nodes), "type": one.kind, "size": one.size} for one in blocks]
        entries.setdefault(uid, {})[container] = listed
    if entries:
        shown["entries"] = entries
    data = compact(shown)
    return compact({**shown, "checksum": _dump_sum(shown, ""), "data": data, "dataChecksum": checksum(data)})


def decode_memory(text: str, policy: str = STATIC) -> MemoryState:
    """Raises Invalid for a corrupted file or one of another policy."""
    return decoded(text, policy, _old_sums, _state)


def _state(found: Json) -> MemoryState:
    nodes = {int(number): _node_of(node) for number, node in (found.get("machineState") or {}).items()}
    assignments = {
        (str(uid), str(container)): tuple(
            Block(tuple(one["numaAffinity"]), str(one["type"]), int(one["size"])) for one in blocks or ()
        )
        for uid, listed in (found.get("entries") or {}).items()
        for container, blocks in listed.items()
    }
    return MemoryState(nodes, assignments)


def restored_memory(policy: MemoryPolicy | None, text: str | None) -> MemoryState:
    """The state in the file of an earlier agent (None: there is no file). Raises Invalid when it cannot be used."""
    if policy is not None:
        return checked(policy, decode_memory(text) if text is not None else MemoryState())
    if text is not None:
        decode_memory(text, NONE)
    return MemoryState()


def _named(numbers: Iterable[int]) -> list[int]:
    """Sorted as strings, as Go writes the keys of a map."""
    return sorted(numbers, key=str)


def _node(node: NumaState) -> Json:
    tables = {
        kind: {
            "total": table.total,
            "systemReserved": table.system,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for kind, table in sorted(node.tables.items())
    }
    return {"numberOfAssignments": node.assignments, "memoryMap": tables, "cells": list(node.cells)}


def _node_of(shown: Json) -> NumaState:
    tables = {
        str(kind): MemoryTable(one["total"], one["systemReserved"], one["allocatable"], one["reserved"], one["free"])
        for kind, one in shown["memoryMap"].items()
    }
    return NumaState(int(shown["numberOfAssignments"]), tables, tuple(shown["cells"]))


def _old_sums(outer: Json) -> tuple[int, int]:
    """The checksums of versions 1 and 2."""
    return _dump_sum(outer, ""), _dump_sum(outer, " PodEntries:(state.PodMemoryAssignments)map[]")


def _dump_sum(shown: Json, more: str) -> int:
    nodes = {int(number): _dumped_node(node) for number, node in (shown.get("machineState") or {}).items()}
    entries = {
        uid: go_map({name: f"[{' '.join(_dumped_block(one) for one in blocks)}]" for name, blocks in listed.items()})
        for uid, listed in (shown.get("entries") or {}).items()
    }
    text = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){shown['policyName']} "
        f"MachineState:(state.NUMANodeMap){go_map(nodes)} "
        f"Entries:(state.ContainerMemoryAssignments){go_map(entries)}{more} Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a(text.encode())


def _dumped_node(node: Json) -> str:
    tables = {
        kind: f"<*>{{TotalMemSize:(uint64){one['total']} SystemReserved:(uint64){one['systemReserved']} "
        f"Allocatable:(uint64){one['allocatable']} Reserved:(uint64){one['reserved']} Free:(uint64){one['free']}}}"
        for kind, one in node["memoryMap"].items()
    }
    return (
        f"<*>{{NumberOfAssignments:(int){node['numberOfAssignments']} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){go_map(tables)} Cells:([]int)[{_spaced(node['cells'])}]}}"
    )


def _dumped_block(block: Json) -> str:
    nodes = _spaced(block["numaAffinity"])
    return f"{{NUMAAffinity:([]int)[{nodes}] Type:(v1.ResourceName){block['type']} Size:(uint64){block['size']}}}"


def _spaced(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))
