"""What is wrong with the Nodes: deleted, never registered, not ready, short of something. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.explain.model import Wait
from cli.why.findings import at_time, finding
from cli.why.model import Explained, Facts, condition, spec_of
from cli.why.remedies import remedy
from nodelib.json_values import Json

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def nodes(expected: Iterable[str], facts: Facts) -> list[Explained]:
    """Every Node of the API server, and those of `expected` (machines that should be one) which it does not have."""
    if "node" not in facts.lists:
        return []
    there = {one["metadata"]["name"] for one in facts.all("node")}
    return [node(one, facts) for one in facts.all("node")] + [
        _absent(name, facts) for name in sorted(set(expected) - there)
    ]


def node(obj: Json, facts: Facts) -> Explained:
    return finding("node", obj, "Ready, cordoned" if _is_cordoned(obj) else "Ready", _waits(obj), facts)


def _is_cordoned(obj: Json) -> bool:
    return spec_of(obj).get("unschedulable") is True


def _waits(obj: Json) -> Iterator[Wait]:
    ready = condition(obj, "Ready")
    if ready.get("status") != "True":
        found = ready or {"reason": "NodeStatusUnknown", "message": "no agent has ever reported for it"}
        yield _of_condition(obj, "its agent", found)
    for kind in _PRESSURES:
        found = condition(obj, kind)
        if found.get("status") == "True":
            yield _of_condition(obj, kind, found)
    if _is_cordoned(obj):
        text = "it takes no new pods: somebody cordoned or drained it"
        yield Wait("kubectl uncordon", "Cordoned", text, remedy("Cordoned", text, "node", obj))


def _of_condition(obj: Json, on: str, found: Json) -> Wait:
    reason, text = str(found.get("reason", "")), str(found.get("message", ""))
    return Wait(on, reason, text, remedy(reason, text, "node", obj), at_time(found.get("lastTransitionTime")))


def _absent(name: str, facts: Facts) -> Explained:
    obj: Json = {"metadata": {"name": name}}
    text = "the API server has no Node of this name: it was deleted, or has never registered"
    wait = Wait("the API server", "NotRegistered", text, remedy("NotRegistered", text, "node", obj))
    return finding("node", obj, "not a Node of the cluster", [wait], facts)
