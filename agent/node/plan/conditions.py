"""The conditions of the Node, and the Events that their changes are worth.

Follows MemoryPressureCondition and its siblings in pkg/kubelet/nodestatus/setters.go, with the reasons and messages
that users and controllers know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.common.model.eviction import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from agent.node.model import NodeEvent, NodeInputs
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

# condition type -> ((reason, message, event) when it is True, the same when it is False)
_CONDITIONS: Mapping[str, tuple[tuple[str, str, str], tuple[str, str, str]]] = {
    MEMORY_PRESSURE: (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
    ),
    DISK_PRESSURE: (
        ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    ),
    PID_PRESSURE: (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    ),
}


def conditions(
    old: Iterable[Json], inputs: NodeInputs, name: str, now: float
) -> tuple[list[Json], tuple[NodeEvent, ...]]:
    """The conditions and the Events of their changes: others' first, then ours in upstream's order, Ready last."""
    stamp = format_rfc3339(now)
    before_by_type = {entry["type"]: entry for entry in old}
    ours = {*_CONDITIONS, "Ready", *(one.kind for one in inputs.more)}
    found = [entry for entry in before_by_type.values() if entry["type"] not in ours]
    events = []
    for kind, (when_true, when_false) in _CONDITIONS.items():
        wanted = "True" if kind in inputs.pressures else "False"
        reason, message, event = when_true if wanted == "True" else when_false
        before = before_by_type.get(kind)
        if before is None or before.get("status") != wanted:
            events.append(NodeEvent("Normal", event, f"Node {name} status is now: {event}"))
        found.append(_condition(kind, wanted, reason, message, before, stamp))
    for one in inputs.more:
        found.append(_condition(one.kind, one.status, one.reason, one.message, before_by_type.get(one.kind), stamp))
    ready, problem = _readiness(inputs)
    before = before_by_type.get("Ready")
    if before is not None and before.get("status") != ready:
        event = "NodeReady" if ready == "True" else "NodeNotReady"
        events.append(NodeEvent("Normal", event, f"Node {name} status is now: {event}"))
    reason = "KubeletReady" if ready == "True" else "KubeletNotReady"
    found.append(_condition("Ready", ready, reason, problem or "kubelet is posting ready status", before, stamp))
    return found, tuple(events)


def schedulable_events(old: Json | None, new: Json) -> tuple[NodeEvent, ...]:
    """The Event of a Node that was cordoned or uncordoned."""
    before, now = (bool(((node or {}).get("spec") or {}).get("unschedulable")) for node in (old, new))
    if before == now:
        return ()
    word, name = "NodeNotSchedulable" if now else "NodeSchedulable", new["metadata"]["name"]
    return (NodeEvent("Normal", word, f"Node {name} status is now: {word}"),)


def _readiness(inputs: NodeInputs) -> tuple[str, str]:
    problems = list(dict.fromkeys([*inputs.runtime.problems, *inputs.problems]))
    if not inputs.addresses:
        problems.append("no address of this node is known; give --node-ip")
    if not problems:
        return "True", ""
    return "False", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _condition(kind: str, status: str, reason: str, message: str, before: Json | None, stamp: str) -> Json:
    since = before.get("lastTransitionTime") if before and before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": since or stamp,
        "reason": reason,
        "message": message,
    }
